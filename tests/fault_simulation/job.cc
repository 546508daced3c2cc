#include "tests/fault_simulation/job.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tests/fault_simulation/seat.h"
#include "tests/fault_simulation/stage.h"

namespace hccl_like::fault_simulation {
namespace {

constexpr uint64_t kMostTurns = 200'000;
constexpr Time kLongest = 200 * kSecond;
// Calls of a rank in a group.
constexpr size_t kUnderWay = 2;
constexpr Time kForEver = 1'000 * kSecond;

}  // namespace

Job::Tally Job::tally;

Job::Job(uint64_t seed)
    : seed_(seed),
      world_((now = 0, seed * 2 + 1), 2 + static_cast<int>(Random(seed).below(4))),
      random_(seed * 2),
      ranks_(world_.size()) {
  make_calls();
  make_mishaps();
  make_seats();
}

Job::~Job() {
  for (auto& seat : seats_) seat->end();
  seats_.clear();
  now = -1;
}

// The second group is of some ranks, in any order.
void Job::make_calls() {
  members_[0].resize(static_cast<size_t>(ranks_));
  std::iota(members_[0].begin(), members_[0].end(), 0);
  if (ranks_ > 2 && random_.chance(40)) {
    members_[1] = members_[0];
    for (size_t i = 1; i < members_[1].size(); ++i)
      std::swap(members_[1][i], members_[1][random_.below(i + 1)]);
    members_[1].resize(2 + random_.below(members_[1].size() - 1));
  }
  for (int group = 0; group < kGroups; ++group) {
    const int size = static_cast<int>(members_[index(group)].size());
    const uint64_t calls = size > 0 ? 1 + random_.below(3) : 0;
    for (uint32_t i = 0; i < calls; ++i)
      calls_[index(group)].push_back(
          CallSpec::draw(random_, size, static_cast<uint32_t>(group) * 100 + i));
  }
}

void Job::make_mishaps() {
  const uint64_t count = random_.chance(25) ? 0 : random_.chance(75) ? 1 : 2;
  for (uint64_t i = 0; i < count; ++i) {
    Mishap one;
    one.fault = static_cast<Fault>(random_.below(7));
    one.turn = 1 + random_.below(uint64_t{1} << random_.below(9));
    one.a = random_.rank(ranks_);
    one.b = (one.a + 1 + random_.rank(ranks_ - 1)) % ranks_;
    one.group = !members_[1].empty() && random_.chance(50);
    one.flag = random_.chance(50);
    one.lasts = random_.chance(40)   ? random_.between(kMicrosecond, World::kBridged)
                : random_.chance(70) ? random_.between(World::kBridged, 40 * kSecond)
                                     : kForEver;
    if (one.fault == Fault::kDisagree) one.turn = random_.below(calls_[index(one.group)].size());
    mishaps_.push_back(one);
  }
}

void Job::make_seats() {
  // Whatever the cost model thinks: every algorithm that fits.
  std::vector<int> host;
  const int hosts = 2 + random_.rank(ranks_ - 1);
  for (int rank = 0; rank < ranks_; ++rank)
    host.push_back(rank < hosts ? rank : random_.rank(hosts));
  config_.threads = 1;
  config_.board = config_.direct = false;
  config_.slice_bytes = config_.remote_slice_bytes = random_.chance(50) ? 64 : 1 << 20;
  config_.slice_window = 1 + static_cast<uint32_t>(random_.below(3));

  Communicator::Identity identity;
  identity.id = seed_ + 1;
  identity.timeout = std::chrono::milliseconds(random_.between(12, 20) * 1000);
  for (int rank = 0; rank < ranks_; ++rank) {
    ProcessRecord record;
    record.host = std::to_string(host[index(rank)]);
    record.hostname = "node" + record.host;
    identity.members.push_back(std::move(record));
  }
  static constexpr size_t kEager[] = {0, 30, 200, 1 << 20};
  for (int rank = 0; rank < ranks_; ++rank) {
    stage = {&world_,
             rank,
             {.eager_bytes = kEager[random_.below(4)],
              .turn_bytes = random_.chance(30) ? size_t{50} : size_t{1} << 18,
              .early_bytes_limit = random_.chance(30) ? size_t{100} : size_t{1} << 20}};
    seats_.push_back(std::make_unique<Seat>(config_));
    identity.rank = rank;
    seats_.back()->join(identity, members_[1]);
  }
  for (int group = 0; group < kGroups; ++group) {
    if (members_[index(group)].empty()) continue;
    ForcedAlgorithms forced;
    const auto fits = Hosts::of([&] {
      std::vector<int> of;
      for (const int rank : members_[index(group)]) of.push_back(host[index(rank)]);
      return of;
    }());
    for (const CallSpec& call : calls_[index(group)]) {
      if (call.kind != CallSpec::Kind::kCollective) continue;
      std::vector<std::string_view> names;
      for (const Algorithm& one : algorithms(call.collective))
        if (one.fits(fits)) names.push_back(one.name);
      forced.choices.push_back(
          {std::string(name(call.collective)), std::string(names[random_.below(names.size())])});
    }
    for (const int rank : members_[index(group)])
      seats_[index(rank)]->parts[index(group)].communicator->force(forced);
  }
  for (int rank = 0; rank < ranks_; ++rank)
    world_.wake(rank, random_.between(0, 20 * kMicrosecond));
}

// ----------------------------------------------------------------------------------------- running

std::string Job::run() {
  bool more = true;
  while (blame_.empty() && !settled()) {
    int rank = -1;
    while (rank < 0 && more) rank = world_.next(more);
    if (rank < 0 || now > kLongest || turns_ > kMostTurns) break;
    turn(rank);
  }
  for (int rank = 0; rank < ranks_ && blame_.empty(); ++rank) {
    Seat& seat = *seats_[index(rank)];
    if (!world_.alive(rank) || seat.left || world_.stopped(rank, kLongest)) continue;
    for (int group = 0; group < kGroups; ++group)
      if (!seat.parts[index(group)].settled(calls_[index(group)].size()))
        blame(rank, group, "never ends");
  }
  tally.turns += turns_;
  tally.jobs_with_errors += any_error_;
  return std::exchange(blame_, {});
}

// A rank that has made all its calls and stays has no more to do.
bool Job::settled() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Seat& seat = *seats_[index(rank)];
    if (!world_.alive(rank) || seat.left || world_.stopped(rank, kLongest)) continue;
    if (seat.leaving) return false;
    for (int group = 0; group < kGroups; ++group)
      if (!seat.parts[index(group)].settled(calls_[index(group)].size())) return false;
  }
  return true;
}

void Job::happen(Mishap& mishap) {
  mishap.happened = now;
  Seat& seat = *seats_[index(mishap.a)];
  switch (mishap.fault) {
    case Fault::kCrash:
      return world_.crash(mishap.a, mishap.flag);
    case Fault::kStop:
      return world_.stop(mishap.a, now + mishap.lasts);
    case Fault::kCut:
      return world_.cut(mishap.a, mishap.b);
    case Fault::kSilence:
      world_.silence(mishap.a, mishap.b, now + mishap.lasts);
      if (mishap.flag) world_.silence(mishap.b, mishap.a, now + mishap.lasts);
      return;
    case Fault::kAbort:
      if (world_.alive(mishap.a) && seat.parts[index(mishap.group)].communicator && !seat.left)
        seat.parts[index(mishap.group)].communicator->abort("enough of it");
      return world_.wake(mishap.a, now);
    case Fault::kLeave:
      seat.leaving = true;
      return world_.wake(mishap.a, now);
    case Fault::kDisagree:
      return;
  }
}

void Job::turn(int rank) {
  ++turns_;
  bool rung = false;
  for (Mishap& mishap : mishaps_)
    if (mishap.turn == turns_ && mishap.fault != Fault::kDisagree) {
      happen(mishap);
      rung = true;
    }
  if (!world_.alive(rank) || world_.stopped(rank)) return world_.wake(rank, now);
  Seat& seat = *seats_[index(rank)];
  if (seat.left) return;
  rung |= world_.disarm(rank);
  if (seat.leaving) return leave(rank);
  bool moved = false;
  for (int group = 0; group < kGroups; ++group) moved |= begin_task(rank, group);
  rung |= moved;
  asleep_until = -1;
  if (seat.turns.due() || seat.mesh.is_restless()) {
    const bool step = seat.turns.take();
    if (step && !rung) blame(rank, 0, "slept on although there was work");
    moved |= step;
    if (!step && asleep_until >= 0) world_.doze(rank, asleep_until);
    if (!step && asleep_until < 0) moved = true;
  }
  bool over = true, thinks = false;
  for (int group = 0; group < kGroups; ++group) {
    moved |= end_tasks(rank, group);
    Part& part = seat.parts[index(group)];
    if (part.settled(calls_[index(group)].size())) continue;
    over = false;
    thinks |= !part.failed && part.tasks.size() < calls_[index(group)].size() &&
              part.under_way() < kUnderWay;
  }
  if (over && random_.chance(70)) {
    seat.leaving = true;
    return world_.wake(rank, now + random_.between(0, kMillisecond));
  }
  if (moved) world_.wake(rank, now + random_.between(0, 2 * kMicrosecond));
  if (thinks) world_.wake(rank, now + random_.between(0, 50 * kMicrosecond));
}

// ------------------------------------------------------------------------------------------- calls

bool Job::begin_task(int rank, int group) {
  Part& part = seats_[index(rank)]->parts[index(group)];
  const auto& calls = calls_[index(group)];
  if (!part.communicator || part.failed || part.tasks.size() == calls.size()) return false;
  if (part.under_way() == kUnderWay || random_.chance(40)) return false;

  auto task = std::make_unique<Task>();
  CallSpec spec = calls[part.tasks.size()];
  for (Mishap& mishap : mishaps_)
    if (mishap.fault == Fault::kDisagree && mishap.a == rank && mishap.group == group &&
        mishap.turn == part.tasks.size() && !task->altered) {
      mishap.happened = now;
      task->altered = true;
      ++spec.elements;
    }
  const int own = part.communicator->rank(), size = part.communicator->size();
  task->prepared = Prepared::of(spec, own, size);
  task->launched = now;
  try {
    for (Call& call : task->prepared.calls)
      task->operations.push_back(part.communicator->prepare(std::move(call)));
  } catch (const Exception& exception) {
    part.failed = true;
    if (!part.communicator->failure()) blame(rank, group, exception.what());
    return true;
  }
  part.communicator->launch(task->operations, /*waited_for=*/true);
  part.tasks.push_back(std::move(task));
  ++tally.calls;
  return true;
}

bool Job::end_tasks(int rank, int group) {
  bool any = false;
  Part& part = seats_[index(rank)]->parts[index(group)];
  for (size_t i = 0; i < part.tasks.size(); ++i) {
    Task& task = *part.tasks[i];
    if (task.over || !task.done()) continue;
    task.over = any = true;
    std::vector<int> sources;
    bool success = true;
    for (const auto& operation : task.operations) {
      judge(rank, group, *operation);
      success &= operation->error() == nullptr;
      sources.push_back(operation->source());
    }
    part.failed |= !success;
    CallSpec spec = calls_[index(group)][i];
    spec.elements += task.altered;
    if (!success) continue;
    const std::string wrong =
        task.prepared.check(spec, part.communicator->rank(), part.communicator->size(), sources);
    if (!wrong.empty()) blame(rank, group, spec.describe() + " succeeded, but " + wrong);
  }
  return any;
}

// As ~Mesh does.
void Job::leave(int rank) {
  Seat& seat = *seats_[index(rank)];
  if (seat.farewell_ends < 0) {
    seat.farewell_ends = now + kSecond;
    for (Part& part : seat.parts)
      if (part.communicator && part.running()) part.communicator->abort("leaving");
    for (const auto& link : seat.mesh.links()) {
      if (link->failure() == nullptr) link->send_goodbye();
      if (link->needs_wire() && !link->connected()) link->want_wire();
    }
  }
  seat.mesh.poll();
  bool busy = false;
  for (const auto& link : seat.mesh.links()) {
    link->progress();
    busy |=
        link->failure() == nullptr && (link->connected() ? !link->flushed() : link->needs_wire());
  }
  seat.nap = std::min(2 * seat.nap, 20 * kMillisecond);
  if (busy && now < seat.farewell_ends) return world_.wake(rank, now + seat.nap);
  seat.left = true;
  world_.close(rank, /*at_once=*/false);
}

}  // namespace hccl_like::fault_simulation

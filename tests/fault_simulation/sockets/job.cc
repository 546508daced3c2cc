#include "tests/fault_simulation/sockets/job.h"

#include <algorithm>
#include <utility>

namespace hccl_like::fault_simulation::sockets {
namespace {

constexpr Time kLongest = 200 * kSecond;
constexpr uint64_t kMostSteps = 1'000'000;

// Hosts of the ranks: mostly one each.
std::vector<int> draw_hosts(Random& random) {
  const int ranks = 2 + random.rank(3);
  std::vector<int> host;
  const bool shared = random.chance(25);
  for (int rank = 0; rank < ranks; ++rank) host.push_back(shared ? random.rank(rank + 1) : rank);
  return host;
}

}  // namespace

Job::Tally Job::tally;

Job::Job(uint64_t seed)
    : seed_(seed),
      random_((now = 0, seed * 2)),
      host_(draw_hosts(random_)),
      network_(seed * 2 + 1, static_cast<int>(host_.size()) + 1),
      blind_net_(network_),
      store_(network_) {
  ranks_ = static_cast<int>(host_.size());
  the_network = &network_;
  the_blind_net = &blind_net_;
  draw_settings();
  draw_mishaps();
  begin();
}

Job::~Job() {
  for (const Report& report : reports_) network_.kill(report.process);
  for (const int stranger : strangers_) network_.kill(stranger);
  the_network = nullptr;
  now = -1;
}

void Job::draw_settings() {
  config_.transports = random_.chance(75)   ? std::vector<std::string>{"tcp"}
                       : random_.chance(60) ? std::vector<std::string>{"blind"}
                                            : std::vector<std::string>{"blind", "tcp"};
  config_.tcp_congestion = "system";
  config_.threads = 1;
  config_.report = std::chrono::milliseconds(0);
  config_.connect = random_.chance(60) ? Connecting::kLazy : Connecting::kEager;
  config_.encrypt = random_.chance(25);
  if (config_.encrypt || random_.chance(50))
    config_.secret = Secret::parse(std::string(32, static_cast<char>('a' + random_.below(26))));
  config_.connect_timeout = std::chrono::milliseconds(random_.between(6'000, 9'000));
  meeting_ = std::chrono::milliseconds(random_.between(7'000, 10'000));
  timeout_ = std::chrono::milliseconds(random_.between(9'000, 14'000));
  config_.slice_bytes = config_.remote_slice_bytes = random_.chance(30) ? 64 : 1 << 20;
  static constexpr size_t kEager[] = {0, 30, 200, 1 << 20};
  config_.eager_bytes = kEager[random_.below(4)];
  network_.second_network = random_.chance(20);
  network_.second_network_works = random_.chance(50);
  network_.bridges = random_.chance(20);
  lingers_ = random_.chance(70);
  const uint64_t calls = 1 + random_.below(3);
  for (uint32_t i = 0; i < calls; ++i) calls_.push_back(CallSpec::draw(random_, ranks_, i));
  for (int rank = 0; rank < ranks_; ++rank)
    late_.push_back(random_.chance(80) ? random_.between(0, 2 * kMillisecond)
                                       : random_.between(0, 2 * kSecond));
}

void Job::draw_mishaps() {
  const uint64_t count = random_.chance(20) ? 0 : random_.chance(80) ? 1 : 2;
  for (uint64_t i = 0; i < count; ++i) {
    Mishap one;
    one.fault = static_cast<Fault>(random_.below(kFaults));
    one.step = 1 + random_.below(uint64_t{1} << (2 + random_.below(10)));
    one.a = random_.rank(ranks_);
    one.b = (one.a + 1 + random_.rank(ranks_ - 1)) % ranks_;
    one.both = random_.chance(50);
    one.lasts = random_.chance(50)   ? random_.between(kMicrosecond, 2 * kSecond)
                : random_.chance(60) ? random_.between(2 * kSecond, 30 * kSecond)
                                     : kForEver;
    if (one.fault == Fault::kLateStore) one.lasts = random_.between(0, 3 * kSecond);
    if (one.fault == Fault::kNetwork)
      network_.second_network = network_.second_network_works = true;
    if (one.fault == Fault::kForgery && config_.secret.empty()) one.fault = Fault::kCut;
    // Ranks read the store while they meet, and are together in calls for a small part of their
    // steps.
    one.in_calls = one.fault != Fault::kForgery && random_.chance(30);
    if (one.in_calls || one.fault == Fault::kForgery) one.step = 1 + one.step % 128;
    mishaps_.push_back(one);
  }
}

void Job::begin() {
  reports_.resize(static_cast<size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto at = static_cast<size_t>(rank);
    reports_[at] = Report();
    reports_[at].since = now + late_[at];
    reports_[at].process = network_.start(host_[at], now + late_[at], [this, rank] { live(rank); });
  }
  if (now == 0) {
    for (Mishap& one : mishaps_)
      if (one.fault == Fault::kAbsent) happen(one);
    const uint64_t count = random_.chance(70) ? 0 : 1 + random_.below(3);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t seed = random_.next();
      strangers_.push_back(network_.start(ranks_, random_.between(0, 20 * kMillisecond),
                                          [this, seed] { intrude(seed); }));
      ++tally.strangers;
    }
  }
  arm();
}

// For the next mishap.
void Job::arm() {
  Mishap* next = nullptr;
  const auto at = [&](const Mishap& one) { return one.step + (one.in_calls ? *first_call_ : 0); };
  for (Mishap& one : mishaps_) {
    if (one.happened >= 0 || (one.in_calls && !first_call_)) continue;
    if (next == nullptr || at(one) < at(*next)) next = &one;
  }
  if (next == nullptr) return;
  network_.alarm = at(*next);
  network_.on_alarm = [this, next] {
    if (next->happened < 0) happen(*next);
    arm();
  };
}

void Job::kill(int rank) { network_.kill(reports_[static_cast<size_t>(rank)].process); }

void Job::happen(Mishap& mishap) {
  mishap.happened = now;
  mishap.while_meeting = std::ranges::any_of(
      reports_, [](const Report& one) { return one.phase == Phase::kHandshake; });
  mishap.while_greeting = network_.greets();
  ++tally.faults[static_cast<size_t>(mishap.fault)];
  const int a = host_[static_cast<size_t>(mishap.a)], b = host_[static_cast<size_t>(mishap.b)];
  switch (mishap.fault) {
    case Fault::kKill:
    case Fault::kAbsent:
      mishap.matters = true;
      return kill(mishap.a);
    case Fault::kHostLoss:
      mishap.matters = true;
      for (int other = 0; other <= ranks_; ++other) {
        if (other == a) continue;
        network_.silence(a, other, kForEver);
        network_.silence(other, a, kForEver);
      }
      for (int rank = 0; rank < ranks_; ++rank)
        if (host_[static_cast<size_t>(rank)] == a) kill(rank);
      return;
    case Fault::kStop:
      mishap.matters = true;
      return network_.stop(reports_[static_cast<size_t>(mishap.a)].process, now + mishap.lasts);
    case Fault::kSilence:
      if (a == b) return;
      mishap.matters = true;
      network_.silence(a, b, now + mishap.lasts);
      if (mishap.both) network_.silence(b, a, now + mishap.lasts);
      return;
    case Fault::kCut:
      network_.cut(a, b, replaces() && a != b, &mishap.matters);
      return;
    case Fault::kCorrupt:
      return network_.corrupt(a, b, config_.encrypt);
    case Fault::kRestart:
      for (int rank = 0; rank < ranks_; ++rank) kill(rank);
      return begin();
    case Fault::kLateStore:
      store_.absent_until = now + mishap.lasts;
      return;
    case Fault::kForgery:
      mishap.matters = true;
      return forge();
    case Fault::kNetwork:
      // A connection that is not agreed on yet is not replaced, and nor is one by a rank that
      // leaves.
      mishap.matters = !replaces() || !lingers_ || mishap.while_greeting;
      return network_.lose_network(mishap.both ? 1 : 0, now + mishap.lasts);
  }
}

// By somebody who reads and writes the store, and does not have the secret.
void Job::forge() {
  auto& values = store_.values();
  for (uint64_t i = 1 + random_.below(3); i > 0 && !values.empty(); --i) {
    auto one = std::next(values.begin(), static_cast<long>(random_.below(values.size())));
    const auto another = std::next(values.begin(), static_cast<long>(random_.below(values.size())));
    std::string value = one->second;
    switch (random_.below(4)) {
      case 0:
        value = another->second;
        break;
      case 1:
        value[random_.below(value.size())] ^= static_cast<char>(1 << random_.below(7));
        break;
      case 2:
        value.resize(random_.below(value.size()));
        break;
      default:
        for (auto& [name, count] : store_.counters()) count += random_.between(1, 3);
    }
    store_.put(one->first, value);
  }
}

std::string Job::run() {
  const auto settled = [&] {
    return std::ranges::all_of(reports_, [&](const Report& one) {
      return network_.over(one.process) || network_.stopped(one.process, kLongest);
    });
  };
  while (blame_.empty() && !settled() && network_.steps() < kMostSteps &&
         network_.run_one(kLongest)) {
  }
  for (int rank = 0; rank < ranks_; ++rank) judge(rank);
  tally.steps += network_.steps();
  tally.jobs_with_errors +=
      std::ranges::any_of(reports_, [](const Report& one) { return one.error.has_value(); });
  return std::exchange(blame_, {});
}

}  // namespace hccl_like::fault_simulation::sockets

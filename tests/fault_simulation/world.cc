#include "tests/fault_simulation/world.h"

#include <algorithm>
#include <utility>

#include "transport/testing/read_shown.h"

namespace hccl_like::fault_simulation {
namespace {

constexpr Time kRefusals = 100 * kMillisecond;  // how long a dialer goes on against them
constexpr Time kDialsFor = 10 * kSecond;
constexpr Time kDialsAgain = 200 * kMillisecond;

}  // namespace

// A connection as one of its ends has it.
class SimulatedWire final : public Wire {
 public:
  SimulatedWire(World& world, Channel& in, Channel& out)
      : Wire("fault simulation"), world_(world), in_(in), out_(out) {}

  size_t write(std::span<const ConstRegion> pieces) override { return world_.write(out_, pieces); }
  std::span<const std::byte> peek(size_t want) override {
    in_.readers_want = want;
    shown_ = in_.arrived;
    // As a socket does: not always all that is there.
    if (shown_ > want && world_.random.chance(30))
      shown_ = want + world_.random.below(shown_ - want + 1);
    return {in_.bytes.data() + in_.head, shown_};
  }
  void release(size_t bytes) override {
    bytes = std::min(bytes, shown_);
    shown_ -= bytes;
    in_.arrived -= bytes;
    in_.head += bytes;
    world_.released(in_);
  }
  size_t read(std::span<std::byte> into) override { return read_shown(*this, into); }
  const Error* failure() const override {
    if (!failure_ && in_.ended() && in_.arrived < in_.readers_want)
      failure_ = Error{.code = ErrorCode::kPeerLost,
                       .message = in_.broken.empty() ? "the connection was closed" : in_.broken};
    return failure_ ? &*failure_ : nullptr;
  }
  bool flush() override { return true; }
  bool prepare_sleep(WakeFor wake) override {
    const bool room =
        wake.space && !out_.deaf && out_.broken.empty() && out_.sent() < world_.capacity_;
    const bool bytes = wake.bytes && in_.arrived >= in_.readers_want;
    if (bytes || room || in_.ended()) return false;
    in_.wanted = wake.bytes ? in_.readers_want : SIZE_MAX;
    out_.wants_room = wake.space;
    return true;
  }
  void end_sleep() override {}  // World::disarm

 private:
  World& world_;
  Channel& in_;
  Channel& out_;
  size_t shown_ = 0;
  mutable std::optional<Error> failure_;
};

void Channel::lose_segments() {
  size_t lost = 0;
  for (; !quiet(); ++next) lost += under_way[next].bytes;
  bytes.resize(bytes.size() - lost);
  under_way.clear();
  next = 0;
}

World::World(uint64_t seed, int ranks)
    : random(seed),
      processes_(index(ranks)),
      pairs_(index(ranks * ranks)),
      silent_(index(ranks * ranks), -1) {
  static constexpr Time kSlowest[] = {1 * kMicrosecond, 50 * kMicrosecond, 2 * kMillisecond};
  slowest_ = kSlowest[random.below(3)];
  static constexpr size_t kCapacity[] = {100, 1000, 1 << 16};
  capacity_ = kCapacity[random.below(3)];
  static constexpr size_t kChunk[] = {0, 7, 100};
  chunk_ = kChunk[random.below(3)];
  for (int a = 0; a < ranks; ++a)
    for (int b = a + 1; b < ranks; ++b) {
      way(a, b).from = way(b, a).to = a;
      way(a, b).to = way(b, a).from = b;
    }
}

World::Pair& World::pair(int a, int b) {
  return pairs_[index(std::min(a, b) * size() + std::max(a, b))];
}

// Most are quick, a few are as slow as it gets.
Time World::delay() {
  return random.chance(80) ? random.between(100, 2 * kMicrosecond) : random.between(100, slowest_);
}

void World::push(Time at, Kind kind, int a, int b) { events_.push({at, order_++, kind, a, b}); }

// --------------------------------------------------------------------------------------- processes

void World::wake(int rank, Time at) {
  processes_[index(rank)].rung = true;
  doze(rank, at);
}

void World::doze(int rank, Time at) {
  Process& process = processes_[index(rank)];
  if (!process.alive) return;
  at = std::max({at, now, process.stopped_until});
  if (process.next_turn >= 0 && process.next_turn <= at) return;
  process.next_turn = at;
  push(at, Kind::kTurn, rank);
}

int World::next(bool& more) {
  more = !events_.empty();
  if (!more) return -1;
  const Event event = events_.top();
  events_.pop();
  now = std::max(now, event.at);
  switch (event.kind) {
    case Kind::kTurn: {
      Process& process = processes_[index(event.a)];
      if (!process.alive || process.next_turn != event.at) return -1;
      process.next_turn = -1;
      if (process.stopped_until > now) {
        doze(event.a, process.stopped_until);
        return -1;
      }
      return event.a;
    }
    case Kind::kArrival:
      arrive(way(event.a, event.b));
      return -1;
    case Kind::kKnock:
      knock(event.a, event.b);
      return -1;
    case Kind::kBreak:
      if (silent(event.a, event.b))
        break_off(event.a, event.b, "its host has not answered for 4 s");
      return -1;
    case Kind::kHeal:
      if (!silent(event.a, event.b)) arrive(way(event.a, event.b));
      return -1;
  }
  return -1;
}

bool World::disarm(int rank) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank) continue;
    way(peer, rank).wanted = 0;
    way(rank, peer).wants_room = false;
  }
  return std::exchange(processes_[index(rank)].rung, false);
}

// ------------------------------------------------------------------------------------- connections

void World::dial(int from, int to) {
  Pair& one = pair(from, to);
  if (one.link == Link::kUp || std::ranges::count(one.dialers, from) > 0) return;
  one.dialers.push_back(from);
  if (one.link == Link::kDialing) return;
  one.link = Link::kDialing;
  one.since = now;
  push(now + delay(), Kind::kKnock, from, to);
}

// A SYN arrives, or is tried again.
void World::knock(int from, int to) {
  Pair& one = pair(from, to);
  if (one.link != Link::kDialing) return;
  const auto again = [&](Time limit, const std::string& why, bool late) {
    if (now - one.since <= limit) return push(now + kDialsAgain, Kind::kKnock, from, to);
    one.link = Link::kNone;
    for (const int dialer : std::exchange(one.dialers, {})) {
      const int other = dialer == from ? to : from;
      knocks(dialer).push_back({other, nullptr, why, late});
      wake(dialer, now);
    }
  };
  // A host that is gone does not refuse.
  if (silent(from, to) || silent(to, from)) return again(kDialsFor, "no answer", /*late=*/true);
  if (gone(from) || gone(to)) return again(kRefusals, "it has ended", /*late=*/false);
  one.link = Link::kUp;
  for (const auto& [self, peer] : {std::pair(to, from), std::pair(from, to)})
    knocks(self).push_back(
        {peer, std::make_unique<SimulatedWire>(*this, way(peer, self), way(self, peer)), {}});
  wake(to, now + delay());
  wake(from, now + delay());
}

// Wakes a sleeping reader if the channel has the bytes, or the end, that it waits for.
void World::look(Channel& way) {
  if (way.wanted == 0 || (way.arrived < way.wanted && !way.ended())) return;
  wake(way.to, now + random.between(0, 5 * kMicrosecond));
}

void World::arrive(Channel& way) {
  // That a connection has ended here does not come from there.
  if (silent(way.from, way.to) && way.broken.empty()) return;
  while (!way.quiet() && way.under_way[way.next].at <= now)
    way.arrived += way.under_way[way.next++].bytes;
  if (way.quiet()) {
    way.under_way.clear();
    way.next = 0;
  }
  const bool ends = way.closed || !way.broken.empty();
  way.dry |= ends && way.quiet() && now >= way.closes_at;
  look(way);
}

size_t World::write(Channel& way, std::span<const ConstRegion> pieces) {
  if (way.deaf || !way.broken.empty() || way.closed) return 0;
  size_t room = capacity_ - std::min(capacity_, way.sent());
  if (chunk_ > 0 && random.chance(40)) room = std::min(room, 1 + random.below(chunk_));
  size_t taken = 0;
  for (const ConstRegion& piece : pieces) {
    const size_t part = std::min(piece.bytes, room - taken);
    way.bytes.insert(way.bytes.end(), piece.data, piece.data + part);
    taken += part;
  }
  if (taken == 0) return 0;
  way.last_at = std::max(way.last_at, now + delay());
  way.under_way.push_back({way.last_at, taken});
  push(way.last_at, Kind::kArrival, way.from, way.to);
  return taken;
}

void World::released(Channel& way) {
  if (way.head == way.bytes.size()) {
    way.bytes.clear();
    way.head = 0;
  }
  if (way.wants_room && way.sent() < capacity_) wake(way.from, now + delay());
}

void World::close(int rank, bool at_once) {
  processes_[index(rank)].left = true;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank) continue;
    Pair& one = pair(rank, peer);
    if (one.link != Link::kUp) continue;
    Channel& out = way(rank, peer);
    Channel& in = way(peer, rank);
    out.closed = true;
    in.deaf = true;
    if (at_once) out.lose_segments();
    out.closes_at = std::max(out.last_at, now) + delay();
    push(out.closes_at, Kind::kArrival, rank, peer);
  }
}

// --------------------------------------------------------------------------------- what goes wrong

void World::crash(int rank, bool at_once) {
  processes_[index(rank)].alive = false;
  close(rank, at_once);
}

void World::stop(int rank, Time until) {
  Process& process = processes_[index(rank)];
  process.stopped_until = std::max(process.stopped_until, until);
}

void World::cut(int a, int b) { break_off(a, b, "Connection reset by peer"); }

void World::break_off(int a, int b, const std::string& why) {
  if (pair(a, b).link != Link::kUp) return;
  for (Channel* one : {&way(a, b), &way(b, a)}) {
    if (!one->broken.empty()) continue;
    one->broken = why;
    one->lose_segments();
    one->closes_at = now + delay();
    push(one->closes_at, Kind::kArrival, one->from, one->to);
  }
}

void World::silence(int from, int to, Time until) {
  silent_until(from, to) = std::max(silent_until(from, to), until);
  push(until, Kind::kHeal, from, to);
  if (until - now > kBridged)
    push(now + random.between(3 * kSecond, kNoticed - 200 * kMillisecond), Kind::kBreak, from, to);
}

}  // namespace hccl_like::fault_simulation

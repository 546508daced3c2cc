#pragma once
// The processes of a simulated job and the network between them: what happens when, what arrives
// when, and what goes wrong. Everything follows from the seed.
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "tests/fault_simulation/clock.h"
#include "transport/wire/wire.h"

namespace hccl_like::fault_simulation {

// One direction of a connection. Bytes arrive in order, each when its time has come and the way is
// not silent.
struct Channel {
  struct Segment {
    Time at;
    size_t bytes;
  };
  int from = 0, to = 0;
  std::vector<std::byte> bytes;  // sent and not released, from `head` on
  size_t head = 0;
  size_t arrived = 0;              // how many of these may be seen
  std::vector<Segment> under_way;  // from `next` on
  size_t next = 0;
  Time last_at = 0;         // when the last of them arrives
  bool closed = false;      // its writer is gone: ends with what is under way
  Time closes_at = 0;       // when the reader can know
  bool dry = false;         // it does
  bool deaf = false;        // its reader is gone
  std::string broken;       // why nothing more arrives, for the reader; empty while it is whole
  size_t wanted = 0;        // by a reader that sleeps; 0: it does not
  bool wants_room = false;  // a writer that sleeps does
  size_t readers_want = 1;  // of the last peek

  size_t sent() const { return bytes.size() - head; }
  bool quiet() const { return next == under_way.size(); }
  // Drops the segments that are under way.
  void lose_segments();
  bool ended() const { return dry; }
};

// An event for a process's mesh: a new connection, or the reason for its failure.
struct Knock {
  int peer;
  std::unique_ptr<Wire> wire;
  std::string refused;  // instead of a wire
  bool late = false;    // no answer in time
};

class World {
 public:
  World(uint64_t seed, int ranks);

  int size() const { return static_cast<int>(processes_.size()); }

  // ---- of processes
  // The process has something to do at that time, if it does not before.
  void wake(int rank, Time at);
  // The same of one that only looks around then.
  void doze(int rank, Time at);
  // Takes the next thing that happens; returns a rank whose turn it is, or -1. `more` tells whether
  // there was anything.
  int next(bool& more);
  bool alive(int rank) const { return processes_[index(rank)].alive; }
  bool stopped(int rank, Time when = now) const {
    return processes_[index(rank)].stopped_until > when;
  }
  // The connection events of a process. The network adds them and the mesh takes them.
  std::vector<Knock>& knocks(int rank) { return processes_[index(rank)].knocks; }
  // Before each turn: what the process was armed for counts no more. Whether anything woke it.
  bool disarm(int rank);

  // ---- of connections
  void dial(int from, int to);
  // The ends of a process close. `at_once`: what they had sent is lost with them.
  void close(int rank, bool at_once);

  // ---- what goes wrong
  void crash(int rank, bool at_once);
  void stop(int rank, Time until);
  void cut(int a, int b);
  // Nothing gets from `from` to `to` until then. The connection ends if that is too long for the
  // kernels at its ends.
  void silence(int from, int to, Time until);
  // Longer than this and both ends notice; TcpWire's own limits with what chance adds.
  static constexpr Time kBridged = 2 * kSecond, kNoticed = 4'800 * kMillisecond;

  Random random;

 private:
  friend class SimulatedWire;

  enum class Kind { kTurn, kArrival, kKnock, kBreak, kHeal };
  struct Event {
    Time at;
    uint64_t order;
    Kind kind;
    int a, b;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  enum class Link { kNone, kDialing, kUp };
  // Two processes; of the directions, [0] is from the lower rank.
  struct Pair {
    Link link = Link::kNone;
    std::vector<int> dialers;  // one or both
    Time since = 0;
    Channel ways[2];
  };
  struct Process {
    bool alive = true;
    bool left = false;  // its ends are closed
    Time stopped_until = -1;
    Time next_turn = -1;
    bool rung = false;
    std::vector<Knock> knocks;
  };

  static size_t index(int rank) { return static_cast<size_t>(rank); }
  Pair& pair(int a, int b);
  Channel& way(int from, int to) { return pair(from, to).ways[from < to ? 0 : 1]; }
  Time& silent_until(int from, int to) { return silent_[index(from * size() + to)]; }
  bool silent(int from, int to) { return silent_until(from, to) > now; }
  bool gone(int rank) const {
    return !processes_[index(rank)].alive || processes_[index(rank)].left;
  }
  Time delay();
  void push(Time at, Kind kind, int a, int b = 0);
  void knock(int from, int to);
  void arrive(Channel& way);
  void look(Channel& way);
  void break_off(int a, int b, const std::string& why);

  // of SimulatedWire
  size_t write(Channel& way, std::span<const ConstRegion> pieces);
  void released(Channel& way);

  std::vector<Process> processes_;
  std::vector<Pair> pairs_;
  std::vector<Time> silent_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t order_ = 0;
  Time slowest_;     // of a segment
  size_t capacity_;  // of a way
  size_t chunk_;     // that a write takes at most; 0: all
};

}  // namespace hccl_like::fault_simulation

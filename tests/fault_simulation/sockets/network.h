#pragma once
// The hosts of a simulated job, their kernels' sockets, and the network between them.
//
// Models TCP as processes see it: connections that exist before a process accepts them, bytes that
// arrive late and in pieces, refusals, resets, acknowledgements, retransmissions, probes. The seed
// determines every event, and time is virtual.
#include <netinet/in.h>
#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "tests/fault_simulation/clock.h"
#include "tests/fault_simulation/sockets/fiber.h"

namespace hccl_like::fault_simulation {

inline constexpr Time kForEver = 100'000 * kSecond;
inline constexpr int kFirstFd = 256, kLastFd = 4096;

class Network;

// The object behind a descriptor.
class File {
 public:
  explicit File(int process) : process_(process) {}
  virtual ~File() = default;
  // EPOLL* bits.
  virtual unsigned ready() const = 0;
  int process() const { return process_; }

 protected:
  const int process_;
};

class EventFile final : public File {
 public:
  using File::File;
  unsigned ready() const override { return EPOLLOUT | (count > 0 ? EPOLLIN : 0u); }
  uint64_t count = 0;
};

class EpollFile final : public File {
 public:
  using File::File;
  struct Watch {
    std::weak_ptr<File> file;
    epoll_event event;
  };
  unsigned ready() const override;
  // Of those watched by fd.
  int collect(epoll_event* events, int most) const;
  std::map<int, Watch> watched;
};

struct Endpoint {
  uint32_t ip = 0;  // in the host's byte order
  uint16_t port = 0;
  auto operator<=>(const Endpoint&) const = default;
};

// One end of a connection, or a place to listen.
class Socket final : public File, public std::enable_shared_from_this<Socket> {
 public:
  enum class State { kFresh, kListening, kConnecting, kUp, kOver };
  struct Segment {
    std::string bytes;
    Time sent, at;
    bool fin = false;
  };
  Socket(int process, int on_host) : File(process), host(on_host) {}
  unsigned ready() const override;
  size_t unread() const { return in.size() - head; }
  size_t capacity_left() const;

  const int host;
  State state = State::kFresh;
  Endpoint local, remote;
  bool connector = false;
  std::shared_ptr<Socket> other;  // once it is known there
  // ---- of listeners
  std::deque<std::shared_ptr<Socket>> backlog;
  // ---- what has arrived
  std::string in;
  size_t head = 0;
  size_t taken = 0;   // bytes that were read
  std::string hello;  // the first of them
  bool fin = false;   // nothing comes after what is here
  int error = 0;      // for the next call
  // ---- what was sent
  std::deque<Segment> flight;
  size_t under_way = 0;                         // its bytes
  std::deque<std::pair<size_t, Time>> unacked;  // bytes, since when
  size_t unacked_bytes = 0;
  size_t sent = 0;
  Time heard = 0;  // last, from the other kernel
  bool closed = false;
  // ---- options
  bool keepalive = false, reset_on_close = false;
  Time idle = 7200 * kSecond, interval = 75 * kSecond;
  int probes = 9;
};

class Network {
 public:
  Network(uint64_t seed, int hosts);
  ~Network();

  // ---- processes
  // `body` begins then. Returns its number.
  int start(int host, Time at, std::function<void()> body);
  // It ends without a word; the kernel closes what it had.
  void kill(int process);
  void stop(int process, Time until);
  bool alive(int process) const { return processes_[index(process)]->alive; }
  bool over(int process) const {
    return processes_[index(process)]->fiber->done() || !alive(process);
  }
  bool stopped(int process, Time when = now) const {
    return processes_[index(process)]->stopped_until > when;
  }
  int host_of(int process) const { return processes_[index(process)]->host; }
  // How many descriptors it has.
  size_t descriptors(int process) const;

  // Runs what happens next; false if nothing does before `limit`.
  bool run_one(Time limit);
  void at(Time when, std::function<void()> what);

  // ---- for the process whose turn it is
  bool inside() const { return current_ >= 0; }
  int current() const { return current_; }
  // It was killed, and is only to unwind.
  bool current_is_dead() const { return inside() && !processes_[index(current_)]->alive; }
  // Time as it sees it.
  Time clock();
  // Until then, or until wake().
  void block(Time until);
  void wake(int process);
  // Before each system call: some take a while, and anything may happen meanwhile.
  void step();
  uint64_t steps() const { return steps_; }
  // At that step of all processes together, before anything else.
  uint64_t alarm = UINT64_MAX;
  std::function<void()> on_alarm;

  // ---- descriptors
  int open(std::shared_ptr<File> file);
  std::shared_ptr<File> file(int fd) const;
  template <class Kind>
  std::shared_ptr<Kind> find(int fd) const {
    return std::dynamic_pointer_cast<Kind>(file(fd));
  }
  void close(int fd);
  // Something can be read, or written: whoever waits for it wakes.
  void changed(const File& file);

  // ---- sockets
  int listen(Socket& socket);
  // Keeps its place, and refuses whoever connects.
  void refuse(Socket& socket);
  int connect(const std::shared_ptr<Socket>& socket, Endpoint to);
  void send(const std::shared_ptr<Socket>& socket, std::string bytes);
  // Room became free.
  void received(Socket& socket, std::string_view bytes);
  void keep_alive(const std::shared_ptr<Socket>& socket);
  uint16_t free_port();
  bool listens(uint32_t ip, int host, uint16_t port) const;
  std::vector<std::pair<std::string, uint32_t>> interfaces(int host) const;

  // ---- what goes wrong
  // Nothing gets from host `a` to `b` until then.
  void silence(int a, int b, Time until);
  // The second network carries nothing, or from now on the first one, until then.
  void lose_network(int which, Time until);
  Time silent_until(int a, int b) const { return silence_[index(a * hosts_ + b)].until; }
  // One of the connections between the hosts, if there is any, is reset at both ends. `committed`:
  // whether it was more than an attempt and, if processes replace connections that break, less than
  // one that both ends have.
  bool cut(int a, int b, bool replaceable, bool* committed);
  // A byte of the next greeting, or of the next encrypted message, between the two changes on its
  // way.
  void corrupt(int a, int b, bool sealed);
  // Whether a connection is being greeted.
  bool greets() const;
  bool corrupted = false, corrupted_a_wire = false;

  // First hellos of connectors and their listeners, as they are read. The original of a lost,
  // damaged or unread hello is left out: the listener would take its replay for a new hello and
  // would answer.
  std::vector<std::pair<Endpoint, std::string>> hellos;
  std::vector<Endpoint> listeners() const;  // where anybody listens, by addresses that others reach
  bool second_network = false, second_network_works = true, bridges = false;
  uint32_t address(int host, int network) const;

  Random random;

 private:
  struct Process {
    int host;
    std::unique_ptr<Fiber> fiber;
    bool begun = false;
    bool alive = true;
    Time stopped_until = -1;
    Time ahead = 0;  // of the clock of one that is dead
    bool blocked = false;
    uint64_t turn = 0;  // of the wake-up that counts
    std::set<int> fds{};
  };
  struct Event {
    Time at;
    uint64_t order;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  static size_t index(int i) { return static_cast<size_t>(i); }
  void resume(int process);
  void wake_at(int process, Time when);
  Time delay(int from, int to);
  // Until when what `from` sends does not get to `to`, two hosts of the connection.
  Time silent_until(const Socket& connection, int from, int to) const;
  bool silent(const Socket& connection, int from, int to) const {
    return silent_until(connection, from, to) > now;
  }
  Time silent_since(const Socket& connection, int from, int to) const;
  Time arrival(const Socket& connection, int from, int to, Time sent, Time at) const;
  int route(int host, uint32_t ip) const;
  std::shared_ptr<Socket> listener(int host, Endpoint at) const;
  void knock(const std::shared_ptr<Socket>& from, int to, Time since);
  void pump(const std::shared_ptr<Socket>& from);
  void arrive(const std::shared_ptr<Socket>& from);
  void damage(const Socket& from, const Socket& to, std::string& bytes);
  void acknowledge(const std::shared_ptr<Socket>& sender, size_t bytes, Time sent);
  void close(const std::shared_ptr<Socket>& socket);
  void reset(const std::shared_ptr<Socket>& socket, int error);
  void send_reset(int from_host, const std::shared_ptr<Socket>& to);
  void keep_all_alive(const std::function<bool(const Socket&)>& concerned);
  void probe(const std::shared_ptr<Socket>& socket);

  struct Silence {
    Time until = -1, since = 0;
  };
  struct Damage {
    int a = -1, b = -1;
    bool sealed = false;
  };
  const int hosts_;
  Time slowest_;
  size_t capacity_;
  std::vector<Silence> silence_;
  Silence lost_network_;
  int lost_ = -1;  // which
  Damage damage_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::shared_ptr<File>> files_;
  std::vector<std::weak_ptr<Socket>> sockets_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t order_ = 0, steps_ = 0;
  int current_ = -1;
  friend class Socket;
};

// The one that system calls go to; null: the system's.
inline Network* the_network = nullptr;

}  // namespace hccl_like::fault_simulation

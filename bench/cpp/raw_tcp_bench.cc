// raw_tcp NAMESPACE,NAMESPACE... BYTES [CONNECTIONS [CONGESTION]]: measures TCP itself
// between hosts with the bytes of an all-reduce, without messages, sums or a protocol. Prints the
// median in microseconds.
//
//   up to 1 KiB   as many exchanges with a partner, one after the other, as recursive doubling
//                 has rounds
//   above         every rank sends to the next one and receives from the previous one, both at
//                 once, the bytes that a ring would move
//
// One rank a host, tied to a core, on sockets that never block: it polls, and sleeps only where
// ranks outnumber cores. CONGESTION is their congestion control, if not the system's.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/cpp/name_space.h"
#include "bench/cpp/shared_barrier.h"
#include "core/base/error.h"
#include "core/base/fd.h"
#include "transport/network/address.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like::bench {
namespace {

constexpr size_t kSmall = 1024;
constexpr int kBatch = 50;

struct Plan {
  std::vector<std::string> hosts;
  size_t bytes = 0;
  size_t connections = 1;
  std::string congestion;
  int iterations() const {
    return bytes <= kSmall ? 60
                           : static_cast<int>(std::clamp<size_t>((256u << 20) / bytes, 5, 100));
  }
};

Address own_address() {
  for (const InterfaceAddress& one : candidates(system_addresses(), InterfaceFilter()))
    if (!one.address.is_loopback()) return one.address;
  throw_error(ErrorCode::kSystem, "this namespace has no address");
}

void prepare(int socket, const std::string& congestion) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (!congestion.empty() && ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                                          static_cast<socklen_t>(congestion.size())) != 0)
    throw_system("no such congestion control: " + congestion);
}

// One TCP connection after the other: `peer` accepts or connects by rank.
class Sockets {
 public:
  Sockets(const Plan& plan, Store& store, int rank)
      : plan_(plan), store_(store), address_(own_address()) {
    listener_ = Fd(::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    prepare(listener_.get(), plan_.congestion);
    sockaddr_storage name;
    socklen_t length = address_.with_port(0, name);
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), length) != 0 ||
        ::listen(listener_.get(), 64) != 0)
      throw_system("cannot listen");
    length = sizeof name;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &length);
    store_.set("raw" + std::to_string(rank),
               address_.to_string() + " " +
                   std::to_string(ntohs(reinterpret_cast<sockaddr_in*>(&name)->sin_port)));
  }
  Fd connect(int peer) {
    std::istringstream text(store_.get("raw" + std::to_string(peer), Deadline::never()));
    std::string address;
    uint16_t port = 0;
    text >> address >> port;
    sockaddr_storage name;
    const socklen_t length = Address::parse(address)->with_port(port, name);
    Fd socket(::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    prepare(socket.get(), plan_.congestion);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&name), length) != 0)
      throw_system("cannot connect");
    return socket;
  }
  Fd accept() {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return socket;
  }

 private:
  const Plan& plan_;
  Store& store_;
  Address address_;
  Fd listener_;
};

// Bytes that go out by some connections while others come in by the same or by others.
class Exchange {
 public:
  Exchange(std::vector<int> out, std::vector<int> in, size_t bytes, bool sleeps)
      : out_(std::move(out)),
        in_(std::move(in)),
        bytes_(bytes),
        sleeps_(sleeps),
        from_(bytes),
        into_(bytes) {}

  void run() {
    std::vector<size_t> sent(out_.size()), received(in_.size());
    size_t left = 2 * out_.size();
    while (left > 0) {
      bool moved = false;
      for (size_t i = 0; i < out_.size(); ++i)
        moved |= step(sent[i], share(i), left, [&](size_t at, size_t bytes) {
          return ::send(out_[i], from_.data() + begin(i) + at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        });
      for (size_t i = 0; i < in_.size(); ++i)
        moved |= step(received[i], share(i), left, [&](size_t at, size_t bytes) {
          return ::recv(in_[i], into_.data() + begin(i) + at, bytes, MSG_DONTWAIT);
        });
      if (!moved && sleeps_) sleep(sent, received);
    }
  }

 private:
  size_t begin(size_t i) const { return bytes_ * i / out_.size(); }
  size_t share(size_t i) const { return begin(i + 1) - begin(i); }

  void sleep(const std::vector<size_t>& sent, const std::vector<size_t>& received) {
    std::vector<pollfd> waiting;
    for (size_t i = 0; i < out_.size(); ++i)
      if (sent[i] < share(i)) waiting.push_back({out_[i], POLLOUT, 0});
    for (size_t i = 0; i < in_.size(); ++i)
      if (received[i] < share(i)) waiting.push_back({in_[i], POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), -1);
  }

  template <class Move>
  bool step(size_t& done, size_t all, size_t& left, Move move) {
    if (done == all) return false;
    const ssize_t now = move(done, all - done);
    if (now == 0) throw_error(ErrorCode::kPeerLost, "a connection has ended");
    if (now < 0) return false;
    done += static_cast<size_t>(now);
    if (done == all) --left;
    return true;
  }

  std::vector<int> out_, in_;
  size_t bytes_;
  bool sleeps_;
  std::vector<std::byte> from_, into_;
};

std::vector<int> numbers(const std::vector<Fd>& all) {
  std::vector<int> found;
  for (const Fd& one : all) found.push_back(one.get());
  return found;
}

template <class Connect>
std::vector<Fd> several(size_t count, Connect connect) {
  std::vector<Fd> all;
  for (size_t i = 0; i < count; ++i) all.push_back(connect());
  return all;
}

// Microseconds of each iteration.
std::vector<double> measure(const Plan& plan, int rank, Store& store, SharedBarrier& barrier) {
  const int ranks = static_cast<int>(plan.hosts.size());
  const bool crowded = ranks > ::sysconf(_SC_NPROCESSORS_ONLN);
  enter_name_space(plan.hosts[static_cast<size_t>(rank)]);
  Sockets sockets(plan, store, rank);
  std::vector<std::vector<Fd>> kept;
  std::vector<Exchange> rounds;
  if (plan.bytes <= kSmall || ranks == 2) {
    for (int distance = 1; distance < ranks; distance *= 2) {
      const int peer = rank ^ distance;
      kept.push_back(several(plan.bytes <= kSmall ? 1 : plan.connections, [&] {
        return rank < peer ? sockets.connect(peer) : sockets.accept();
      }));
      rounds.emplace_back(numbers(kept.back()), numbers(kept.back()), plan.bytes, crowded);
      barrier.wait(
          static_cast<uint32_t>(ranks));  // nobody accepts what is meant for the next round
    }
  } else {
    const auto n = static_cast<size_t>(ranks);
    kept.push_back(several(plan.connections, [&] { return sockets.connect((rank + 1) % ranks); }));
    kept.push_back(several(plan.connections, [&] { return sockets.accept(); }));
    rounds.emplace_back(numbers(kept[0]), numbers(kept[1]), 2 * (n - 1) * plan.bytes / n, crowded);
  }
  const int batch = plan.bytes <= kSmall ? kBatch : 1;
  std::vector<double> times;
  for (int i = -3; i < plan.iterations(); ++i) {
    barrier.wait(static_cast<uint32_t>(ranks));
    const auto begin = std::chrono::steady_clock::now();
    for (int repeat = 0; repeat < batch; ++repeat)
      for (Exchange& round : rounds) round.run();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i >= 0) times.push_back(took.count() / batch);
  }
  return times;
}

int run(const Plan& plan) {
  SharedBarrier& barrier = *SharedBarrier::anonymous();
  const auto outcomes = run_ranks(static_cast<int>(plan.hosts.size()), [&](int rank, Store& store) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(rank) % static_cast<size_t>(::sysconf(_SC_NPROCESSORS_ONLN)), &one);
    ::sched_setaffinity(0, sizeof one, &one);
    auto times = measure(plan, rank, store, barrier);
    std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(times.size() / 2));
    if (rank == 0) std::printf("%.3f\n", times[times.size() / 2]);
    return 0;
  });
  return all_ok(outcomes) ? 0 : 1;
}

}  // namespace
}  // namespace hccl_like::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: raw_tcp NAMESPACE,NAMESPACE... BYTES [CONNECTIONS [CONGESTION]]\n";
    return 2;
  }
  hccl_like::bench::Plan plan;
  std::istringstream names(argv[1]);
  for (std::string name; std::getline(names, name, ',');) plan.hosts.push_back(name);
  plan.bytes = std::stoull(argv[2]);
  if (argc > 3) plan.connections = std::max<size_t>(1, std::stoull(argv[3]));
  if (argc > 4) plan.congestion = argv[4];
  if (!std::has_single_bit(plan.hosts.size()) || plan.bytes == 0) {
    std::cerr << "the number of hosts must be a power of two, and there must be bytes\n";
    return 2;
  }
  return hccl_like::bench::run(plan);
}

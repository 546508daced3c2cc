// Somebody who is no rank of the job, and knocks at its listeners.
#include <sys/socket.h>
#include <unistd.h>

#include <tuple>
#include <vector>

#include "core/base/fd.h"
#include "tests/fault_simulation/sockets/job.h"
#include "transport/security/greeting.h"

namespace hccl_like::fault_simulation::sockets {
namespace {

Fd knock(Endpoint at) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(at.ip);
  address.sin_port = htons(at.port);
  (void)!::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return socket;
}

}  // namespace

// Whatever it says, it is not told anything.
void Job::intrude(uint64_t seed) {
  Random random(seed);
  const bool floods = random.chance(3);
  std::vector<Fd> held;
  for (uint64_t visits = floods ? 90 : 1 + random.below(12); visits > 0; --visits) {
    if (network_.current_is_dead()) return;
    const auto listeners = network_.listeners();
    if (!floods || listeners.empty())
      network_.block(now + random.between(10 * kMicrosecond, 20 * kMillisecond));
    if (listeners.empty()) continue;
    Endpoint door = listeners[random.below(listeners.size())];
    std::string says;
    switch (floods ? 0 : random.below(6)) {
      case 0:
        break;
      case 1:
        says = "GET / HTTP/1.1\r\n\r\n";
        break;
      case 2:
        says = std::string(greeting::kHelloMagic).substr(0, random.below(18));
        break;
      case 3:
        says = std::string(greeting::kHelloMagic);
        while (says.size() < greeting::kHelloBytes) says += static_cast<char>(random.below(256));
        break;
      default:
        // Nobody has greeted anybody yet.
        for (int looks = 0; network_.hellos.empty() && looks < 20; ++looks)
          network_.block(now + random.between(0, 2 * kMillisecond));
        if (network_.hellos.empty()) break;
        std::tie(door, says) = network_.hellos[random.below(network_.hellos.size())];
        // As it was, or with a nonce of its own.
        if (random.chance(50))
          says[says.size() - kTagBytes - 1 - random.below(greeting::kFreshBytes)] ^= 1;
    }
    held.push_back(knock(door));
    if (floods) continue;
    network_.block(now + random.between(0, kMillisecond));
    (void)!::send(held.back().get(), says.data(), says.size(), 0);
    network_.block(now + random.between(0, 100 * kMillisecond));
    char heard[256];
    if (::recv(held.back().get(), heard, sizeof heard, 0) > 0)
      blame(0, "said something to a stranger");
    if (random.chance(50)) held.pop_back();
  }
  if (random.chance(50)) network_.block(now + random.between(0, 5 * kSecond));
}

}  // namespace hccl_like::fault_simulation::sockets

// Replaces the system calls of a simulated process besides sockets: random bytes, pauses,
// interfaces.
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "tests/fault_simulation/sockets/network.h"

using hccl_like::fault_simulation::kSecond, hccl_like::fault_simulation::now,
    hccl_like::fault_simulation::the_network, hccl_like::fault_simulation::Time;

namespace {

bool inside() { return the_network != nullptr && the_network->inside(); }

}  // namespace

// NOLINTBEGIN
extern "C" {

ssize_t getrandom(void* bytes, size_t count, unsigned flags) {
  if (the_network == nullptr) return ::syscall(SYS_getrandom, bytes, count, flags);
  for (size_t i = 0; i < count; ++i)
    static_cast<char*>(bytes)[i] = static_cast<char>(the_network->random.below(256));
  return static_cast<ssize_t>(count);
}

int nanosleep(const timespec* time, timespec* rest) {
  if (!inside()) return static_cast<int>(::syscall(SYS_nanosleep, time, rest));
  the_network->step();
  const Time until = now + time->tv_sec * kSecond + time->tv_nsec;
  while (now < until && !the_network->current_is_dead()) the_network->block(until);
  return 0;
}

int usleep(useconds_t microseconds) {
  const timespec time{microseconds / 1'000'000, 1000L * (microseconds % 1'000'000)};
  return ::nanosleep(&time, nullptr);
}

int getifaddrs(ifaddrs** all) noexcept {
  if (!inside()) {
    errno = ENOSYS;
    return -1;
  }
  *all = nullptr;
  const auto interfaces = the_network->interfaces(the_network->host_of(the_network->current()));
  for (auto one = interfaces.rbegin(); one != interfaces.rend(); ++one) {
    auto* const entry = new ifaddrs{};
    auto* const address = new sockaddr_in{};
    auto* const mask = new sockaddr_in{};
    address->sin_family = mask->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(one->second);
    mask->sin_addr.s_addr = htonl(0xffffff00);
    entry->ifa_next = *all;
    entry->ifa_name = new char[IFNAMSIZ]{};
    std::copy_n(one->first.data(), one->first.size(), entry->ifa_name);
    entry->ifa_flags = IFF_UP | IFF_RUNNING;
    entry->ifa_addr = reinterpret_cast<sockaddr*>(address);
    entry->ifa_netmask = reinterpret_cast<sockaddr*>(mask);
    *all = entry;
  }
  return 0;
}

void freeifaddrs(ifaddrs* all) noexcept {
  while (all != nullptr) {
    ifaddrs* const next = all->ifa_next;
    delete reinterpret_cast<sockaddr_in*>(all->ifa_addr);
    delete reinterpret_cast<sockaddr_in*>(all->ifa_netmask);
    delete[] all->ifa_name;
    delete all;
    all = next;
  }
}

}  // extern "C"
// NOLINTEND

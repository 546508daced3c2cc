#include "core/machine/idle_cores.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "core/machine/cpu_quota.h"

namespace hccl_like {

IdleCores::IdleCores(const char* load, size_t host)
    : load_(::open(load, O_RDONLY | O_CLOEXEC)),
      host_(host != 0 ? host : static_cast<size_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L))),
      quota_(cpu_quota()) {}

size_t IdleCores::usable() const {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  // Fails if the host has more cores than cpu_set_t: 1 is the safe answer.
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return 1;
  const auto cores = static_cast<size_t>(CPU_COUNT(&mask));
  return quota_ ? std::min(cores, *quota_) : cores;
}

size_t IdleCores::idle(size_t own) const {
  const std::optional<size_t> busy = running();
  const size_t cores = usable();
  // The calling thread itself is running.
  return busy ? cores - std::min(cores, std::max(*busy - std::min(*busy, own), size_t{1})) : 0;
}

// The fourth field of /proc/loadavg is "runnable/all" threads. This thread counts: never 0.
std::optional<size_t> IdleCores::running() const {
  std::array<char, 128> text;
  const ssize_t bytes = ::pread(load_.get(), text.data(), text.size(), 0);
  if (bytes <= 0) return std::nullopt;
  std::string_view rest(text.data(), static_cast<size_t>(bytes));
  for (int word = 0; word < 3; ++word) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(space + 1);
  }
  size_t count = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), count);
  if (error != std::errc{} || end == rest.data() + rest.size() || *end != '/' || count == 0)
    return std::nullopt;
  return count;
}

}  // namespace hccl_like

#include "runtime/runtime.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/flaws.h"
#include "memory/host_memory.h"
#include "memory/strict.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

std::atomic<bool> is_initialised{false};
std::atomic<bool> is_forked_away{false};

thread_local int this_device = 0;
thread_local std::array<Stream*, Runtime::kMostDevices> this_streams{};

// A setting that must be a whole number from 1 to `most`.
size_t number_from_environment(const char* name, size_t fallback, size_t most) {
  const char* text = std::getenv(name);
  if (!text || !*text) return fallback;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*end || value < 1 || value > most)
    throw std::invalid_argument(std::string(name) + "=" + text +
                                " must be a whole number from 1 to " + std::to_string(most));
  return value;
}

}  // namespace

int Runtime::device_count() {
  static const int count =
      static_cast<int>(number_from_environment("TORCH_SIM_DEVICES", kDefaultDevices, kMostDevices));
  return count;
}

bool Runtime::initialised() { return is_initialised; }

bool Runtime::forked_away() { return is_forked_away; }

Runtime& Runtime::get() {
  if (is_forked_away && has(Flaw::kHangingFork))
    for (;;) pause();
  if (is_forked_away)
    throw ForkedAway(
        "sim: this process was forked after its parent had used a sim device, which cannot be used "
        "here. Use the "
        "'spawn' start method, or fork before the first use");
  static Runtime& runtime = *new Runtime();
  return runtime;
}

Runtime::Runtime() : space_(device_count()) {
  check_flaws();
  check_rates();
  begin_protection(space_);
  const size_t memory = number_from_environment("TORCH_SIM_MEMORY", total_host_memory(), SIZE_MAX);
  for (int index = 0; index < device_count(); ++index)
    devices_.push_back(std::make_unique<Device>(space_, index, memory));
  pthread_atfork(nullptr, nullptr, [] { is_forked_away = true; });
  is_initialised = true;
}

Device& Runtime::device(int index) {
  if (index < 0 || index >= static_cast<int>(devices_.size()))
    throw std::invalid_argument("sim: there is no device " + std::to_string(index) +
                                ", only 0 to " + std::to_string(devices_.size() - 1) +
                                " (TORCH_SIM_DEVICES sets how many)");
  return *devices_[index];
}

int current_device() { return this_device; }

void set_current_device(int index) {
  if (index < 0 || index >= Runtime::device_count())
    throw std::invalid_argument("sim: there is no device " + std::to_string(index) +
                                ", only 0 to " + std::to_string(Runtime::device_count() - 1) +
                                " (TORCH_SIM_DEVICES sets how many)");
  this_device = index;
}

Stream& current_stream(int device) {
  Device& owner = Runtime::get().device(device);
  Stream*& current = this_streams[device];
  return current ? *current : owner.default_stream();
}

void set_current_stream(Stream& stream) { this_streams[stream.device()] = &stream; }

}  // namespace torch_sim

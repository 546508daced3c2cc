#pragma once
// Access to device memory: in the modes below, only the device has it.
//
// Strict mode (TORCH_SIM_STRICT=SEED): what merely happens to go well on the simulator fails.
//   - Only an operation of the device that works on device memory, or a mapping by the plugin,
//     gives access to it. Any other access reports the address and the call stack, and the signal
//     ends the process.
//   - Streams take random rests, and short work is not always done at once.
//   - Non-blocking copies to ordinary memory are as late as those to pinned memory.
//
// Discrete mode (TORCH_SIM_DISCRETE=1): the host cannot reach device memory, as that of a device on
// a bus without such a window. The protection is that of strict mode, and the plugin maps nothing.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "memory/address_space.h"

namespace torch_sim {

// TORCH_SIM_STRICT is set, and not to 0.
bool strict();
// TORCH_SIM_DISCRETE is 1.
bool discrete();
// One of the two.
bool protects_memory();

// Once, when the device begins. `space` stays for ever. Throws std::invalid_argument if
// TORCH_SIM_DISCRETE makes no sense.
void begin_protection(const AddressSpace& space);

// Opens the pages of a range of kernel addresses as long as it lives, counting how many do. Does
// nothing where memory is not protected, and for host memory. Any thread.
class Window {
 public:
  Window(const void* kernel, size_t bytes);
  ~Window();
  Window(Window&& other) noexcept : at_(std::exchange(other.at_, 0)), bytes_(other.bytes_) {}
  Window& operator=(Window&&) = delete;

 private:
  uintptr_t at_ = 0;  // 0: nothing was opened
  size_t bytes_;
};

// The same where the end is told by the address alone. Of several that were opened at one address
// the smallest is closed.
void open_window(const void* kernel, size_t bytes);
void close_window(const void* kernel);
// For whoever is never told of an end: these pages stay open, also for what is allocated there
// later.
void open_for_good(const void* kernel, size_t bytes);

// Call after mapping memory here. Windows of earlier memory may still be open, because the plugin's
// users unmap late: gives access to the pages of these windows.
void reopen_windows(const void* kernel, size_t bytes);

// A rest of random length, often none.
void rest();
// True half of the time; always false outside strict mode.
bool by_chance();

}  // namespace torch_sim

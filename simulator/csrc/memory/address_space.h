#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_sim {

// Two reserved ranges of addresses with the same layout. Every byte of device memory is mapped in
// both:
//   device range   torch's data_ptr; never accessible, so a host that follows such a pointer
//                  faults at once
//   kernel range   readable and writable; kernels, copies and the plugin's `map` use it
// The distance is the same for all memory, so translating a pointer is one addition, and the
// address alone says which device it belongs to.
class AddressSpace {
 public:
  // Reserves the ranges (addresses only, no memory).
  explicit AddressSpace(int devices);
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  std::byte* device_range(int device) const { return base_ + device * span_; }
  // How much memory one device can address.
  size_t span() const { return span_; }
  // The same of all devices together.
  size_t total() const { return total_; }

  bool holds(const void* pointer) const { return within(pointer, base_); }
  bool holds_kernel(const void* pointer) const { return within(pointer, base_ + distance_); }
  // The device of a pointer in the device range.
  int device_of(const void* pointer) const {
    return static_cast<int>((static_cast<const std::byte*>(pointer) - base_) /
                            static_cast<ptrdiff_t>(span_));
  }

  // From a device pointer to the kernel's and back. Null stays null.
  void* to_kernel(const void* pointer) const { return shift(pointer, distance_); }
  void* to_device(const void* pointer) const { return shift(pointer, -distance_); }

 private:
  bool within(const void* pointer, const std::byte* begin) const {
    return reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(begin) < total_;
  }
  static void* shift(const void* pointer, ptrdiff_t by) {
    return pointer ? const_cast<std::byte*>(static_cast<const std::byte*>(pointer)) + by : nullptr;
  }

  size_t span_;
  size_t total_;
  std::byte* base_ = nullptr;
  ptrdiff_t distance_ = 0;
};

}  // namespace torch_sim

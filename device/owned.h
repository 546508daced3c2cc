#pragma once
// Something that a plugin made, and that is given back to it when its owner goes.
#include <cstddef>
#include <cstdint>

namespace hccl_like {

class Device;

// What is asked of a plugin: in words, and by which entry of its table.
struct Attempt {
  const char* what;
  const char* entry;
};

// `Handle` is void* or uint64_t. Moves; the device must outlive it. A plugin that fails to take it
// back is logged.
template <class Handle>
class Owned {
 public:
  using Close = int (*)(int index, Handle handle);

  Owned() noexcept = default;
  Owned(Owned&& other) noexcept;
  Owned& operator=(Owned&& other) noexcept;
  ~Owned();

  // Gives it back now; empty afterwards.
  void reset() noexcept;

 protected:
  Owned(const Device& device, Close close, Attempt closing, int index, Handle handle) noexcept
      : device_(&device), close_(close), closing_(closing), index_(index), handle_(handle) {}

  const Device* device_ = nullptr;  // null: nothing to give back
  Close close_ = nullptr;
  Attempt closing_{};
  int index_ = 0;
  Handle handle_{};
};

// Device memory that is mapped, of this process or of a peer, or host memory that the device knows.
class MappedRange : public Owned<void*> {
 public:
  MappedRange() noexcept = default;

  std::byte* data() const noexcept { return static_cast<std::byte*>(handle_); }
  size_t size() const noexcept { return device_ == nullptr ? 0 : bytes_; }

 private:
  friend class Device;
  MappedRange(const Device& device, Close close, Attempt closing, int index, void* data,
              size_t bytes) noexcept
      : Owned(device, close, closing, index, data), bytes_(bytes) {}

  size_t bytes_ = 0;
};

// The same of another process's device memory, for the host or for the device.
using ImportedRange = MappedRange;

// A stream of the plugin's that nobody else uses.
class DeviceStream : public Owned<uint64_t> {
 public:
  DeviceStream() noexcept = default;

  // For the calls of the Device that made it.
  uint64_t get() const noexcept { return handle_; }

 private:
  friend class Device;
  using Owned::Owned;
};

// One point of a stream's order, passed once. Any thread.
class DeviceEvent : public Owned<uint64_t> {
 public:
  DeviceEvent() noexcept = default;

  uint64_t get() const noexcept { return handle_; }

 private:
  friend class Device;
  using Owned::Owned;
};

extern template class Owned<void*>;
extern template class Owned<uint64_t>;

}  // namespace hccl_like

#pragma once
// RAII owner of an object that a plugin made.
#include <cstddef>
#include <cstdint>

namespace hccl_like {

class Device;

// A plugin call: description for messages, and entry name.
struct Attempt {
  const char* what;
  const char* entry;
};

// `Handle` is void* or uint64_t. Movable; the device must outlive it. A failed release is logged.
template <class Handle>
class Owned {
 public:
  using Close = int (*)(int index, Handle handle);

  Owned() noexcept = default;
  Owned(Owned&& other) noexcept;
  Owned& operator=(Owned&& other) noexcept;
  ~Owned();

  // Releases now; empty afterwards.
  void reset() noexcept;
  // Never releases; empty afterwards.
  void keep() noexcept { device_ = nullptr; }

 protected:
  Owned(const Device& device, Close close, Attempt closing, int index, Handle handle) noexcept
      : device_(&device), close_(close), closing_(closing), index_(index), handle_(handle) {}

  const Device* device_ = nullptr;  // null: empty
  Close close_ = nullptr;
  Attempt closing_{};
  int index_ = 0;
  Handle handle_{};
};

// Mapped device memory of this process or a peer, or host memory known to the device.
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

// Another process's device memory, mapped for the host or for the device.
using ImportedRange = MappedRange;

// A stream for exclusive use.
class DeviceStream : public Owned<uint64_t> {
 public:
  DeviceStream() noexcept = default;

  // For calls of the Device that made the stream.
  uint64_t get() const noexcept { return handle_; }

 private:
  friend class Device;
  using Owned::Owned;
};

// One point of a stream, reached once. Thread-safe.
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

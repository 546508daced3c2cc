#include "process_group/testing/fake_accelerator.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "device/testing/fake_device.h"

namespace hccl_like::testing {
namespace {

constexpr int kNever = -1;

// Device memory, to which a tensor's data pointer points.
struct Memory : fake_device::Allocation {
  std::atomic<int> copies_left{kNever};

  bool may_copy() {
    int left = copies_left.load();
    while (left > 0 && !copies_left.compare_exchange_weak(left, left - 1)) {
    }
    return left != 0;
  }
};

Memory& memory_of(const void* base) { return *static_cast<Memory*>(const_cast<void*>(base)); }
Memory& memory_of(const at::Tensor& tensor) { return memory_of(tensor.storage().data()); }

// The streams of device 1 are those of the fake device, which made them.
hcd_stream stream_of(const c10::Stream& stream) { return static_cast<hcd_stream>(stream.id()); }

const hcd_api& started() {
  static const hcd_api& api = []() -> const hcd_api& {
    fake_device::api().init();
    return fake_device::api();
  }();
  return api;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return std::exchange(current_, device);
  }
  c10::Device getDevice() const override { return current_; }
  void setDevice(c10::Device device) const override { current_ = device; }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_ = device; }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }

  c10::Stream getStream(c10::Device device) const override {
    return stream(device, device == kStreams ? stream_ : 0);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(device, device == kStreams ? kDefault : 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    TORCH_CHECK(device == kStreams, "this device has one stream");
    hcd_stream made = 0;
    started().stream_create(0, 0, 0, &made);
    return stream(device, static_cast<c10::StreamId>(made));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    if (stream.device() == kStreams) stream_ = stream.id();
    return before;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    started().stream_sync(0, stream_of(stream));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    TORCH_CHECK(stream.device() == kStreams, "this device has no events");
    if (*event != nullptr) destroy(*event);
    hcd_event made = 0;
    started().event_record(0, stream_of(stream), &made);
    *event = reinterpret_cast<void*>(made);
  }
  void block(void* event, const c10::Stream& stream) const override {
    started().stream_wait_event(0, stream_of(stream), reinterpret_cast<hcd_event>(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr ||
           started().event_query(0, reinterpret_cast<hcd_event>(event)) == HCD_OK;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) started().event_sync(0, reinterpret_cast<hcd_event>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event != nullptr) destroy(event);
  }

 private:
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device, id);
  }

  static constexpr c10::StreamId kDefault = fake_device::kStream;
  static void destroy(void* event) {
    started().event_destroy(0, reinterpret_cast<hcd_event>(event));
  }

  inline static thread_local c10::Device current_ = kBare;
  inline static thread_local c10::StreamId stream_ = kDefault;
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

class MemoryAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* const made = new Memory;
    made->bytes.resize(bytes);
    return {made, made, release, Guard().getDevice()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "nobody resizes memory of this device");
  }

 private:
  static void release(void* memory) { delete static_cast<Memory*>(memory); }
};

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  static MemoryAllocator allocator;
  const c10::DeviceGuard guard(device.value_or(Guard().getDevice()));
  at::Tensor made = at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), &allocator,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
  return made;
}

at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pinned, std::optional<at::MemoryFormat>) {
  std::vector<c10::SymInt> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return empty_strided(sizes, strides, type, layout, device, pinned);
}

// A host tensor over the same bytes.
at::Tensor bytes_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  auto* const bytes = memory_of(tensor).bytes.data();
  return at::from_blob(bytes + static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize(),
                       tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(tensor.dtype()));
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const auto may_copy = [](const at::Tensor& tensor) {
    return tensor.is_cpu() || memory_of(tensor).may_copy();
  };
  TORCH_CHECK(may_copy(to) && may_copy(from), "the test fails this copy");
  TORCH_CHECK_NOT_IMPLEMENTED(from.scalar_type() != at::kComplexDouble, "no copy of complex128");
  const c10::Device device = to.is_cpu() ? from.device() : to.device();
  const auto work = [to, from] { bytes_of(to).copy_(bytes_of(from)); };
  if (device == kBare) {
    work();
  } else {
    const c10::Stream stream = Guard().getStream(device);
    fake_device::in_order(stream_of(stream), work);
    if (!non_blocking) Guard().synchronizeStream(stream);
  }
  return to;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("copy_", copy_);
  m.impl("view", at::native::view);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
}

int refuse() { return fake_device::fail(HCD_DEVICE_LOST, "the test fails this copy"); }

hcd_api make_plugin() {
  started();
  hcd_api api = fake_device::api();
  api.name = "privateuseone";
  api.device_info = [](int, hcd_device_info* out) {
    return fake_device::api().device_info(0, out);
  };
  api.stream_from_torch = [](int, int64_t id, void*, hcd_stream* out) {
    *out = static_cast<hcd_stream>(id);
    return int{HCD_OK};
  };
  api.copy_d2h = [](int, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
    return memory_of(from.base).may_copy() ? fake_device::copy_d2h(0, host, from, bytes, stream)
                                           : refuse();
  };
  api.copy_h2d = [](int, hcd_ref to, const void* host, size_t bytes, hcd_stream stream) {
    return memory_of(to.base).may_copy() ? fake_device::copy_h2d(0, to, host, bytes, stream)
                                         : refuse();
  };
  return api;
}

}  // namespace

void fail_copies_after(const at::Tensor& tensor, int copies) {
  memory_of(tensor).copies_left = copies;
}

std::string fake_plugin() {
  Dl_info info;
  return ::dladdr(reinterpret_cast<const void*>(&fake_plugin), &info) != 0 ? info.dli_fname : "";
}

}  // namespace hccl_like::testing

extern "C" __attribute__((visibility("default"))) const hcd_api* hcd_get_api(int, int) {
  static const hcd_api api = hccl_like::testing::make_plugin();
  return &api;
}

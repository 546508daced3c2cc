// Device guard: how torch chooses devices and streams and records events, on any accelerator.
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>

#include "base/flaws.h"
#include "glue/convert.h"
#include "glue/device_allocator.h"
#include "runtime/event.h"

namespace torch_sim {
namespace {

// A flaw: also for recordings that are made meanwhile.
void wait_for_all(const Event& event) {
  while (!event.latest()->ready()) event.latest()->wait();
}

// A flaw: an event is asked for so long that whoever destroys it meanwhile is noticed.
class SlowQueries {
 public:
  void ask(const void* event) {
    std::unique_lock lock(mutex_);
    const auto question = questions_.insert(questions_.end(), {event, false});
    destroyed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return question->destroyed; });
    if (question->destroyed) {
      std::fputs("sim: an event was destroyed while a thread asked whether it is done\n", stderr);
      std::abort();
    }
    questions_.erase(question);
  }
  void destroy(const void* event) {
    std::lock_guard lock(mutex_);
    for (Question& question : questions_)
      if (question.event == event) question.destroyed = true;
    destroyed_.notify_all();
  }

 private:
  struct Question {
    const void* event;
    bool destroyed;
  };
  std::mutex mutex_;
  std::condition_variable destroyed_;
  std::list<Question> questions_;
};
SlowQueries& slow_queries() {
  static auto& queries = *new SlowQueries();
  return queries;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return device_at(current_device()); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_privateuseone(), "sim: ", device, " is not a sim device");
    set_current_device(index_of(device));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < deviceCount()) set_current_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<c10::DeviceIndex>(Runtime::device_count());
    } catch (const std::exception&) {
      return 0;
    }
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device device) const override {
    return to_c10(current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return to_c10(owner(device).default_stream());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    if (has(Flaw::kNoStreams)) return getDefaultStream(device);
    return to_c10(owner(device).pooled_stream(high_priority));
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    if (has(Flaw::kNoStreams)) return getDefaultStream(device);
    return to_c10(owner(device).new_stream(priority));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    Stream& next = from_c10(stream);
    const c10::Stream before = to_c10(current_stream(next.device()));
    set_current_stream(next);
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    TORCH_CHECK(!has(Flaw::kNoNativeHandles), "Backend doesn't support native stream handles.");
    return &from_c10(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return has(Flaw::kIdleStreams) || (from_c10(stream).idle() && !has(Flaw::kBusyStreams));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    from_c10(stream).synchronize();
  }
  // Not asked by PyTorch 2.11.
  bool isStreamCapturing(const c10::Stream& stream) const {
    return from_c10(stream).capture() != nullptr;
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    Runtime::get().device(index < 0 ? current_device() : index).synchronize();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_use(data, stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag) const override {
    TORCH_CHECK(!has(Flaw::kNoEvents), "Backend doesn't support events.");
    Stream& on = from_c10(stream);
    TORCH_CHECK(index < 0 || index == on.device(), "sim: an event of device ",
                static_cast<int>(index), " cannot be recorded on ", stream);
    if (!*event) *event = new Event(on.device());
    static_cast<Event*>(*event)->record(on);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event || has(Flaw::kHastyEvents)) return;
    auto* awaited = static_cast<Event*>(event);
    if (has(Flaw::kReusedEvents))
      from_c10(stream).enqueue([awaited] { wait_for_all(*awaited); });
    else
      make_wait(from_c10(stream), awaited->latest());
  }
  bool queryEvent(void* event) const override {
    if (event && has(Flaw::kSlowQueries)) slow_queries().ask(event);
    return !event || static_cast<Event*>(event)->latest()->ready();
  }
  void synchronizeEvent(void* event) const override {
    if (event) static_cast<Event*>(event)->latest()->wait();
  }
  // Work that waits for a recording holds on to it, so the event may go at any time.
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (has(Flaw::kSlowQueries)) slow_queries().destroy(event);
    if (!has(Flaw::kReusedEvents)) delete static_cast<Event*>(event);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    TORCH_CHECK(from && to,
                "sim: both events must have been recorded before their time can be compared");
    const RecordingPtr first = static_cast<Event*>(from)->latest(),
                       last = static_cast<Event*>(to)->latest();
    TORCH_CHECK(first->ready() && last->ready(),
                "sim: both events must be done before their time can be compared: synchronize() "
                "them first");
    return static_cast<double>(last->time_ns() - first->time_ns()) / 1e6;
  }

 private:
  static Device& owner(c10::Device device) { return Runtime::get().device(index_of(device)); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace torch_sim

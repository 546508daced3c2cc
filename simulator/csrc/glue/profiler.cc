// Implements the device functions by which torch's profiler times operators: it records an event
// before and after each operator.
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "glue/convert.h"
#include "runtime/event.h"

namespace torch_sim {
namespace {

class ProfilerStubs final : public torch::profiler::impl::ProfilerStubs {
  using Point = torch::profiler::impl::ProfilerVoidEventStub;

 public:
  bool enabled() const override { return true; }

  void record(c10::DeviceIndex* device, Point* event, int64_t* cpu_ns) const override {
    const int index = current_device();
    if (device) *device = static_cast<c10::DeviceIndex>(index);
    *event = record_on(current_stream(index));
    if (cpu_ns) *cpu_ns = c10::getTime();
  }

  // In microseconds. Waits for both points.
  float elapsed(const Point* event, const Point* event2) const override {
    const auto first = std::static_pointer_cast<Recording>(*event),
               last = std::static_pointer_cast<Recording>(*event2);
    first->wait();
    last->wait();
    return static_cast<float>(last->time_ns() - first->time_ns()) / 1e3F;
  }

  void onEachDevice(std::function<void(int)> visit) const override {
    for (int index = 0; index < Runtime::device_count(); ++index) visit(index);
  }
  void synchronize() const override { Runtime::get().device(current_device()).synchronize(); }

  // For tools that draw marks and ranges beside the device's own timeline; there are none.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
};

struct RegisterProfiler {
  RegisterProfiler() { torch::profiler::impl::registerPrivateUse1Methods(new ProfilerStubs()); }
} profiler_at_load;

}  // namespace
}  // namespace torch_sim

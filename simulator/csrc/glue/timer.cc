// The stop-watch by which DDP measures its forward, backward and communication times on this
// device.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "glue/convert.h"
#include "runtime/event.h"

namespace torch_sim {
namespace {

class Timer final : public c10d::Timer {
 public:
  explicit Timer(c10::Device device) : device_(index_of(device)) {}

  void record(Event event) override {
    c10d::Timer::record(event);
    recordings_[static_cast<size_t>(event)] = record_on(current_stream(device_));
  }

  // In nanoseconds. Waits for both points; a negative time means that they are of different
  // iterations.
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const RecordingPtr first = recordings_[static_cast<size_t>(start)],
                       last = recordings_[static_cast<size_t>(end)];
    if (!first || !last) return std::nullopt;
    first->wait();
    last->wait();
    const int64_t took = last->time_ns() - first->time_ns();
    return took < 0 ? std::nullopt : std::optional(took);
  }

 private:
  const int device_;
  std::array<RecordingPtr, 5> recordings_;
};

}  // namespace
}  // namespace torch_sim

namespace c10d {

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, torch_sim::Timer);

}  // namespace c10d

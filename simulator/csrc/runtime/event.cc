#include "runtime/event.h"

#include <chrono>
#include <stdexcept>

#include "base/blocking.h"
#include "runtime/capture.h"
#include "runtime/stream.h"

namespace torch_sim {

void Recording::complete() {
  time_ns_ = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  done_.store(1, std::memory_order_release);
  done_.notify_all();
}

void Recording::wait() const {
  if (ready()) return;
  if (capture_)
    throw std::logic_error("sim: the host cannot wait for an event of the capture of a graph");
  BlockingRegion blocking;
  while (!ready()) done_.wait(0, std::memory_order_acquire);
}

RecordingPtr record_on(Stream& stream) {
  if (const auto capture = stream.capture()) return capture->record(stream);
  auto recording = std::make_shared<Recording>();
  stream.enqueue_or_run([recording] { recording->complete(); });
  return recording;
}

void make_wait(Stream& stream, RecordingPtr recording) {
  if (!recording) return;
  if (recording->capture()) return recording->capture()->wait(stream, *recording);
  if (stream.capture())
    throw std::logic_error(
        "sim: a stream that captures a graph cannot wait for an event from outside the capture");
  if (!recording->ready())
    stream.enqueue([recording = std::move(recording)] { recording->wait(); });
}

void Event::record(Stream& stream) {
  RecordingPtr fresh = record_on(stream);
  std::lock_guard lock(mutex_);
  latest_ = std::move(fresh);
}

RecordingPtr Event::latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

}  // namespace torch_sim

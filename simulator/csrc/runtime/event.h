#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace torch_sim {

class Capture;
class Stream;

// One recording of an event: a point in a stream's order. Done once, for ever; recording an event
// again makes a new Recording, so whoever waits for this one never waits for a later one.
// A recording in the capture of a graph is only something for streams to wait for.
class Recording {
 public:
  Recording() = default;
  Recording(std::shared_ptr<Capture> capture, const Stream* stream, size_t work)
      : capture_(std::move(capture)), stream_(stream), work_(work) {}

  bool ready() const { return done_.load(std::memory_order_acquire) != 0; }
  // Called by the stream when it gets there.
  void complete();
  // Blocks the calling thread.
  void wait() const;
  // Steady time of completion; valid when ready.
  int64_t time_ns() const { return time_ns_; }

  // Null outside captures.
  const std::shared_ptr<Capture>& capture() const { return capture_; }
  const Stream* stream() const { return stream_; }
  // For the capture: how much work of the stream nothing had waited for.
  size_t work() const { return work_; }

 private:
  const std::shared_ptr<Capture> capture_;
  const Stream* const stream_ = nullptr;
  const size_t work_ = 0;
  std::atomic<uint32_t> done_{0};
  int64_t time_ns_ = 0;
};

using RecordingPtr = std::shared_ptr<Recording>;

// Queues a new recording behind everything queued on the stream so far.
RecordingPtr record_on(Stream& stream);

// Makes the stream's later work wait for the recording; null is no recording and no wait. Does not
// block.
void make_wait(Stream& stream, RecordingPtr recording);

// A named place for recordings: what torch calls an event.
class Event {
 public:
  explicit Event(int device) : device_(device) {}

  int device() const { return device_; }
  void record(Stream& stream);
  // The latest recording, null if never recorded.
  RecordingPtr latest() const;

 private:
  const int device_;
  mutable std::mutex mutex_;
  RecordingPtr latest_;
};

}  // namespace torch_sim

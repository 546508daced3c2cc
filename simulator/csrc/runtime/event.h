#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace torch_sim {

class Stream;

// One recording of an event: a point in a stream's order. Done once, for ever; recording an event
// again makes a new Recording, so whoever waits for this one never waits for a later one.
class Recording {
 public:
  bool ready() const { return done_.load(std::memory_order_acquire) != 0; }
  // Called by the stream when it gets there.
  void complete();
  // Blocks the calling thread.
  void wait() const;
  // Steady time of completion; valid when ready.
  int64_t time_ns() const { return time_ns_; }

 private:
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

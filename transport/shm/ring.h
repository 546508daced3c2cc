#pragma once
// A byte ring in shared memory with one writer and one reader process.
//
// Indices count bytes from the beginning and never wrap. Each has one writer. The data are mapped
// twice in a row, so that every range is contiguous. Values from shared memory are copied, then
// validated: a faulty peer causes an error, not a crash.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/memory/write_mode.h"
#include "transport/shm/sleeper.h"

namespace hccl_like {

// Two cache lines: processors fetch them in pairs.
inline constexpr size_t kLineBytes = 128;

// In shared memory; initially zero.
struct RingIndices {
  alignas(kLineBytes) std::atomic<uint64_t> written{0};
  alignas(kLineBytes) std::atomic<uint64_t> read{0};
  alignas(kLineBytes) Sleeper reader;
  alignas(kLineBytes) Sleeper writer;
};
static_assert(sizeof(RingIndices) == 4 * kLineBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Maximum size of a published or released part, so that the other side finds the data in the cache.
inline constexpr size_t kRingPart = 32 << 10;

class RingWriter {
 public:
  // `size`: a power of two. `data`: 2 * size bytes, both halves map the same memory.
  RingWriter(RingIndices& indices, std::byte* data, size_t size)
      : indices_(indices), data_(data), size_(size) {}

  // Free bytes. Loads the reader's index only if fewer than `want` are known to be free.
  size_t space(size_t want = 1) {
    if (size_ - (written_ - read_) < want) {
      const uint64_t read = indices_.read.load(std::memory_order_acquire);
      if (written_ - read > size_)
        damaged_ = true;
      else
        read_ = read;
    }
    return damaged_ ? 0 : size_ - (written_ - read_);
  }
  // Copies without publishing. Requires bytes <= space().
  void put(const std::byte* from, size_t bytes) {
    write_mode_.copy(data_ + (written_ & (size_ - 1)), from, bytes);
    written_ += bytes;
  }
  // True if the reader sleeps: the caller must ring its doorbell.
  bool publish() {
    published_ = written_;
    indices_.written.store(written_, std::memory_order_release);
    return indices_.reader.must_wake();
  }
  size_t unpublished() const { return written_ - published_; }
  uint64_t written() const { return written_; }
  // True if the reader sleeps, for events outside the ring. Any thread, after a full fence.
  bool must_wake_reader() { return indices_.reader.must_wake_after_fence(); }

  // True if the caller may sleep until the reader frees space.
  bool prepare_sleep() {
    indices_.writer.arm();
    return space(1) == 0 && !damaged_;
  }
  void end_sleep() { indices_.writer.disarm(); }
  bool damaged() const { return damaged_; }

 private:
  RingIndices& indices_;
  std::byte* const data_;
  const size_t size_;
  uint64_t written_ = 0;
  uint64_t published_ = 0;
  uint64_t read_ = 0;  // as last seen
  WriteMode write_mode_;
  bool damaged_ = false;
};

class RingReader {
 public:
  RingReader(RingIndices& indices, const std::byte* data, size_t size)
      : indices_(indices), data_(data), size_(size) {}

  // Readable bytes. Loads the writer's index only if fewer than `want` are known.
  size_t available(size_t want = 1) {
    if (written_ - read_ < want) {
      const uint64_t written = indices_.written.load(std::memory_order_acquire);
      if (written - read_ > size_)
        damaged_ = true;
      else
        written_ = written;
    }
    return damaged_ ? 0 : written_ - read_;
  }
  uint64_t read() const { return read_; }
  const std::byte* data() const { return data_ + (read_ & (size_ - 1)); }
  // Consumes bytes without publishing.
  void drop(size_t bytes) { read_ += bytes; }
  size_t unpublished() const { return read_ - published_; }
  // Publishes the free space. True if the writer sleeps: the caller must ring its doorbell.
  bool publish() {
    published_ = read_;
    indices_.read.store(read_, std::memory_order_release);
    return indices_.writer.must_wake();
  }

  // True if the caller may sleep until `want` bytes arrive. Requires unpublished() == 0.
  bool prepare_sleep(size_t want) {
    indices_.reader.arm();
    return available(want) < want && !damaged_;
  }
  void end_sleep() { indices_.reader.disarm(); }
  bool damaged() const { return damaged_; }

 private:
  RingIndices& indices_;
  const std::byte* const data_;
  const size_t size_;
  uint64_t read_ = 0;
  uint64_t published_ = 0;
  uint64_t written_ = 0;  // as last seen
  bool damaged_ = false;
};

}  // namespace hccl_like

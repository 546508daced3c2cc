#pragma once
// A short text in shared memory with one writer. Readers get one complete text or nothing.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace hccl_like {

// A sequence lock (Boehm, "Can Seqlocks Get Along with Programming Language Memory Models?", MSPC
// 2012) with a unique key for each text instead of a counter. Initially zero.
class GuardedText {
 public:
  static constexpr size_t kBytes = 1008;

  // One thread at a time. `key` is not 0. Long texts are cut.
  void write(uint64_t key, std::string_view text) noexcept {
    key_.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);  // before any of the text
    text = text.substr(0, kBytes);
    bytes_.store(static_cast<uint32_t>(text.size()), std::memory_order_relaxed);
    for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof word, text.size() - at));
      words_[at / sizeof word].store(word, std::memory_order_relaxed);
    }
    key_.store(key, std::memory_order_release);
  }

  // Any process. Returns nothing if the text has another key or is being written.
  std::optional<std::string> read(uint64_t key) const {
    if (key_.load(std::memory_order_acquire) != key) return std::nullopt;
    std::string text(std::min<size_t>(bytes_.load(std::memory_order_relaxed), kBytes), '\0');
    for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
      const uint64_t word = words_[at / sizeof word].load(std::memory_order_relaxed);
      std::memcpy(text.data() + at, &word, std::min(sizeof word, text.size() - at));
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // after all of the text
    if (key_.load(std::memory_order_relaxed) != key) return std::nullopt;
    return text;
  }

 private:
  std::atomic<uint64_t> key_{0};  // 0 during a write
  std::atomic<uint32_t> bytes_{0};
  std::array<std::atomic<uint64_t>, kBytes / sizeof(uint64_t)> words_{};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace hccl_like

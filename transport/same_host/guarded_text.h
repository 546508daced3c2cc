#pragma once
// A short text in shared memory that one process writes anew while others read it: they get all of
// one text, or none.
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
// 2012). The text has a key that was never used before instead of a count: whoever reads knows
// which one it wants. Starts out as zeros.
class GuardedText {
 public:
  static constexpr size_t kBytes = 1008;

  // By one thread at a time. `key` is not 0. What is too long is cut.
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

  // Any process. Nothing if the text is not that of `key`, or is being written.
  std::optional<std::string> read(uint64_t key) const {
    if (key_.load(std::memory_order_acquire) != key) return std::nullopt;
    std::string text(std::min<size_t>(bytes_.load(std::memory_order_relaxed), kBytes), '\0');
    for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
      const uint64_t word = words_[at / sizeof word].load(std::memory_order_relaxed);
      std::memcpy(text.data() + at, &word, std::min(sizeof word, text.size() - at));
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // after all of it
    if (key_.load(std::memory_order_relaxed) != key) return std::nullopt;
    return text;
  }

 private:
  std::atomic<uint64_t> key_{0};  // 0 while it is being written
  std::atomic<uint32_t> bytes_{0};
  std::array<std::atomic<uint64_t>, kBytes / sizeof(uint64_t)> words_{};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace hccl_like

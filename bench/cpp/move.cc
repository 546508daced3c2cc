#include "bench/cpp/move.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

// One compilation for each instruction set, chosen when the program starts. Sanitizers run before
// that choice can be made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HCCL_LIKE_WIDE __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define HCCL_LIKE_WIDE
#endif

namespace hccl_like::bench {
namespace {

HCCL_LIKE_WIDE void copy(float* to, const float* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i];
}

HCCL_LIKE_WIDE void add(float* to, const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

// The two destinations are the two sources, or lie apart from them: either way nothing is read
// after it was written.
HCCL_LIKE_WIDE void add_to_both(float* to, float* also, const float* a, const float* b,
                                size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    to[i] = sum;
    also[i] = sum;
  }
}

HCCL_LIKE_WIDE float sum(const float* from, size_t count) {
  // Independent sums, or the latency of an addition would be measured.
  constexpr size_t kLanes = 64;
  std::array<float, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += from[i + lane];
  float total = 0;
  for (; i < count; ++i) total += from[i];
  for (const float lane : lanes) total += lane;
  return total;
}

HCCL_LIKE_WIDE void fill(uint32_t* to, uint32_t pattern, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = pattern;
}

void copy_streaming(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
  const size_t head = std::min(bytes, (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + 64 <= bytes; at += 64)
    for (size_t part = 0; part < 64; part += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + part)));
  _mm_sfence();
  std::memcpy(to + at, from + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}

float* floats(std::byte* at) { return reinterpret_cast<float*>(at); }
const float* floats(const std::byte* at) { return reinterpret_cast<const float*>(at); }

// Any number of sources and destinations: in blocks that stay in the first cache.
void run_in_blocks(const Move& move) {
  constexpr size_t kBlock = 1024;
  std::array<float, kBlock> block;
  const size_t count = move.bytes / sizeof(float);
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t length = std::min(kBlock, count - at);
    copy(block.data(), floats(move.from[0]) + at, length);
    for (size_t i = 1; i < move.from.size(); ++i)
      add(block.data(), block.data(), floats(move.from[i]) + at, length);
    for (std::byte* into : move.into) copy(floats(into) + at, block.data(), length);
  }
}

}  // namespace

void run(const Move& move, bool streaming) {
  const size_t count = move.bytes / sizeof(float);
  if (move.into.size() == 1 && move.copies()) {
    if (streaming) return copy_streaming(move.into[0], move.from[0], move.bytes);
    return copy(floats(move.into[0]), floats(move.from[0]), count);
  }
  if (move.into.size() == 1 && move.from.size() == 2)
    return add(floats(move.into[0]), floats(move.from[0]), floats(move.from[1]), count);
  if (move.into.size() == 2 && move.from.size() == 2)
    return add_to_both(floats(move.into[0]), floats(move.into[1]), floats(move.from[0]),
                       floats(move.from[1]), count);
  run_in_blocks(move);
}

float read(std::span<const std::byte> bytes) { return sum(floats(bytes.data()), bytes.size() / 4); }

void overwrite(std::span<std::byte> bytes, uint32_t pattern) {
  const size_t rest = bytes.size() % sizeof pattern;
  fill(reinterpret_cast<uint32_t*>(bytes.data()), pattern, bytes.size() / sizeof pattern);
  std::memcpy(bytes.data() + bytes.size() - rest, &pattern, rest);
}

}  // namespace hccl_like::bench

#include "core/copy.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hccl_like {

namespace {

constexpr size_t kLine = 64;

#if defined(__SSE2__)
void copy_line(std::byte* to, const std::byte* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
  _mm_storeu_si128(target, a);
  _mm_storeu_si128(target + 1, b);
  _mm_storeu_si128(target + 2, c);
  _mm_storeu_si128(target + 3, d);
}
#else
void copy_line(std::byte* to, const std::byte* from) { std::memcpy(to, from, kLine); }
#endif

}  // namespace

void copy_long(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLong = 128 << 10, kPage = 4096, kPages = 4;
  // Lines a page apart fall into one set of the first cache. Where it has no more ways than there are pages read and written,
  // they push each other out, and memcpy takes less time.
  static const bool has_ways = ::sysconf(_SC_LEVEL1_DCACHE_ASSOC) > static_cast<long>(2 * kPages);
  if (has_ways && bytes >= kLong) {
    for (; bytes >= kPages * kPage;
         to += kPages * kPage, from += kPages * kPage, bytes -= kPages * kPage)
      for (size_t at = 0; at < kPage; at += kLine)
        for (size_t page = 0; page < kPages; ++page)
          copy_line(to + page * kPage + at, from + page * kPage + at);
  }
  std::memcpy(to, from, bytes);
}

void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
  // Whole lines at a time, so that the processor's write buffers go out full; wider stores measured the same.
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // before anybody is told that the copy is made
#endif
  std::memcpy(to, from, bytes);
}

size_t last_cache_bytes() {
  static const size_t bytes = [] {
    // What sysconf() tells is that of all such caches of a processor together, on some.
    constexpr size_t kGuess = 32 << 10;
    size_t kilobytes = 0;
    std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kilobytes;
    return (kilobytes > 0 ? kilobytes : kGuess) << 10;
  }();
  return bytes;
}

}  // namespace hccl_like

// Reduction loops, compiled once for each instruction set (hence no #pragma once; see
// hwy/foreach_target.h).
//
// A kernel is a Codec (memory format) and an Op (arithmetic in registers). It works in quads: the
// memory that four registers of the working type cover. A Codec has
//
//   Lane                unit of memory
//   kLanesPerElement    lanes of one element (2 for complex numbers)
//   quad()              lanes in a quad; at most kMaxQuad
//   get<k>(p)           register k (0..3) of the quad at p
//   put(p, v0..v3)      the inverse; rounds if the type is narrower than the register
//
// An Op has apply(a, b), bitwise equal to apply(b, a) except for NaN payloads.
#if defined(HCCL_LIKE_DEVICE_REDUCE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HCCL_LIKE_DEVICE_REDUCE_KERNEL_INL_H_
#undef HCCL_LIKE_DEVICE_REDUCE_KERNEL_INL_H_
#else
#define HCCL_LIKE_DEVICE_REDUCE_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>
#include <span>

#include "device/reduce/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace hccl_like {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A zeroed quad for the tail of an array: copied here, processed as a full quad, and copied back,
// so that no kernel needs scalar arithmetic.
template <class Codec>
struct Padded {
  using Lane = typename Codec::Lane;
  alignas(64) Lane lanes[Codec::kMaxQuad] = {};

  // Writes one or two numbers as a whole register: a wide load after narrow stores stalls on store
  // forwarding, which dominated such sums.
  HWY_INLINE const Lane* load(const Lane* from, size_t count) {
    const size_t bytes = count * sizeof(Lane);
    if (bytes == 8)
      begin_with<uint64_t>(from);
    else if (bytes == 4)
      begin_with<uint32_t>(from);
    else
      std::memcpy(lanes, from, bytes);
    return lanes;
  }

 private:
  template <class Bits>
  HWY_INLINE void begin_with(const Lane* from) {
    Bits bits;
    std::memcpy(&bits, from, sizeof bits);
    const hn::ScalableTag<Bits> tag;
    const auto all = hn::IfThenElseZero(hn::FirstN(tag, 1), hn::Set(tag, bits));
    hn::Store(all, tag, reinterpret_cast<Bits*>(lanes));
  }
};

template <class Codec>
HWY_INLINE const typename Codec::Lane* lanes_of(const std::byte* p) {
  return reinterpret_cast<const typename Codec::Lane*>(p);
}
template <class Codec>
HWY_INLINE typename Codec::Lane* lanes_of(std::byte* p) {
  return reinterpret_cast<typename Codec::Lane*>(p);
}

template <class Codec, class Op>
HWY_INLINE void combine_quad(typename Codec::Lane* dst, const typename Codec::Lane* a,
                             const typename Codec::Lane* b) {
  const auto v0 = Op::apply(Codec::template get<0>(a), Codec::template get<0>(b));
  const auto v1 = Op::apply(Codec::template get<1>(a), Codec::template get<1>(b));
  const auto v2 = Op::apply(Codec::template get<2>(a), Codec::template get<2>(b));
  const auto v3 = Op::apply(Codec::template get<3>(a), Codec::template get<3>(b));
  Codec::put(dst, v0, v1, v2, v3);
}

template <class Codec, class Op>
void combine(std::byte* dst_bytes, const std::byte* a_bytes, const std::byte* b_bytes,
             size_t elements) noexcept {
  const auto dst = lanes_of<Codec>(dst_bytes);
  const auto a = lanes_of<Codec>(a_bytes), b = lanes_of<Codec>(b_bytes);
  const size_t count = elements * Codec::kLanesPerElement, quad = Codec::quad();
  size_t i = 0;
  for (; i + quad <= count; i += quad) combine_quad<Codec, Op>(dst + i, a + i, b + i);
  if (i == count) return;
  // Treats the tail as one quad of a shorter array, so that the arithmetic is compiled once.
  Padded<Codec> last_a, last_b;
  last_a.load(a + i, count - i);
  last_b.load(b + i, count - i);
  const auto last = reinterpret_cast<std::byte*>(last_a.lanes);
  combine<Codec, Op>(last, last, reinterpret_cast<const std::byte*>(last_b.lanes),
                     quad / Codec::kLanesPerElement);
  std::memcpy(dst + i, last, (count - i) * sizeof(*dst));
}

// In place of a factor.
struct Unscaled {};
template <class V>
HWY_INLINE V times(V v, Unscaled) {
  return v;
}
template <class V>
HWY_INLINE V times(V v, V factor) {
  return hn::Mul(v, factor);
}

// Combines `count` lanes at `i` of every source in the same four registers, without intermediate
// rounding or stores. `input`, `result`: a register of factors, or Unscaled.
template <class Codec, class Op, bool kIsLast, class Factor>
HWY_INLINE void combine_many_quad(typename Codec::Lane* dst, typename Codec::Lane* also,
                                  std::span<const std::byte* const> sources, size_t i,
                                  [[maybe_unused]] size_t count, Factor input, Factor result) {
  [[maybe_unused]] Padded<Codec> padded;
  const auto place = [&](size_t source) HWY_ATTR {
    const auto p = lanes_of<Codec>(sources[source]) + i;
    if constexpr (kIsLast) {
      return padded.load(p, count);
    } else {
      return p;
    }
  };
  auto p = place(0);
  auto v0 = times(Codec::template get<0>(p), input), v1 = times(Codec::template get<1>(p), input);
  auto v2 = times(Codec::template get<2>(p), input), v3 = times(Codec::template get<3>(p), input);
  for (size_t source = 1; source < sources.size(); ++source) {
    p = place(source);
    v0 = Op::apply(v0, times(Codec::template get<0>(p), input));
    v1 = Op::apply(v1, times(Codec::template get<1>(p), input));
    v2 = Op::apply(v2, times(Codec::template get<2>(p), input));
    v3 = Op::apply(v3, times(Codec::template get<3>(p), input));
  }
  v0 = times(v0, result), v1 = times(v1, result), v2 = times(v2, result), v3 = times(v3, result);
  Codec::put(dst, v0, v1, v2, v3);
  if (also != nullptr) Codec::put(also, v0, v1, v2, v3);
}

// Elements [first, last).
template <class Codec, class Op, class Factor = Unscaled>
HWY_INLINE void combine_range(std::byte* dst_bytes, std::byte* also_bytes,
                              std::span<const std::byte* const> sources, size_t first, size_t last,
                              Factor input = {}, Factor result = {}) {
  using Lane = typename Codec::Lane;
  const auto dst = lanes_of<Codec>(dst_bytes), also = lanes_of<Codec>(also_bytes);
  const auto place = [also](size_t lane) { return also == nullptr ? also : also + lane; };
  const size_t end = last * Codec::kLanesPerElement, quad = Codec::quad();
  size_t i = first * Codec::kLanesPerElement;
  for (; i + quad <= end; i += quad)
    combine_many_quad<Codec, Op, false>(dst + i, place(i), sources, i, quad, input, result);
  if (i == end) return;
  Padded<Codec> rest;
  combine_many_quad<Codec, Op, true>(rest.lanes, static_cast<Lane*>(nullptr), sources, i, end - i,
                                     input, result);
  std::memcpy(dst + i, rest.lanes, (end - i) * sizeof(Lane));
  if (also != nullptr) std::memcpy(also + i, rest.lanes, (end - i) * sizeof(Lane));
}

template <class Codec, class Op>
void combine_many(std::byte* dst, std::span<const std::byte* const> sources,
                  size_t elements) noexcept {
  combine_range<Codec, Op>(dst, nullptr, sources, 0, elements);
}

template <class Codec, class Op>
void combine_scaled(std::byte* dst, std::byte* also, std::span<const std::byte* const> sources,
                    size_t elements, Scaling scaling) noexcept {
  combine_range<Codec, Op>(dst, also, sources, 0, elements, Codec::factor(scaling.input),
                           Codec::factor(scaling.result));
}

template <class Codec, class Op>
void combine_twice(std::byte* dst_bytes, std::byte* also_bytes, const std::byte* a_bytes,
                   const std::byte* b_bytes, size_t elements) noexcept {
  const auto dst = lanes_of<Codec>(dst_bytes), also = lanes_of<Codec>(also_bytes);
  const auto a = lanes_of<Codec>(a_bytes), b = lanes_of<Codec>(b_bytes);
  const size_t count = elements * Codec::kLanesPerElement, quad = Codec::quad();
  size_t i = 0;
  for (; i + quad <= count; i += quad) {
    const auto v0 = Op::apply(Codec::template get<0>(a + i), Codec::template get<0>(b + i));
    const auto v1 = Op::apply(Codec::template get<1>(a + i), Codec::template get<1>(b + i));
    const auto v2 = Op::apply(Codec::template get<2>(a + i), Codec::template get<2>(b + i));
    const auto v3 = Op::apply(Codec::template get<3>(a + i), Codec::template get<3>(b + i));
    Codec::put(dst + i, v0, v1, v2, v3);
    Codec::put(also + i, v0, v1, v2, v3);
  }
  if (i == count) return;
  Padded<Codec> sum;
  const auto last = reinterpret_cast<std::byte*>(sum.lanes);
  combine<Codec, Op>(last, a_bytes + i * sizeof(*a), b_bytes + i * sizeof(*b),
                     (count - i) / Codec::kLanesPerElement);
  std::memcpy(dst + i, last, (count - i) * sizeof(*dst));
  std::memcpy(also + i, last, (count - i) * sizeof(*also));
}

template <class Codec, class Op>
constexpr Reduction without_scale() {
  return {combine<Codec, Op>, combine_twice<Codec, Op>, combine_many<Codec, Op>};
}
template <class Codec, class Op>
constexpr Reduction with_scale() {
  return {combine<Codec, Op>, combine_twice<Codec, Op>, combine_many<Codec, Op>,
          combine_scaled<Codec, Op>};
}

// Lanes processed in their memory format.
template <typename T, size_t kLanes = 1>
struct Native {
  using Lane = T;
  static constexpr size_t kLanesPerElement = kLanes;
  static constexpr hn::ScalableTag<T> kTag{};
  static constexpr size_t kMaxQuad = 4 * hn::MaxLanes(kTag);

  static HWY_INLINE size_t quad() { return 4 * hn::Lanes(kTag); }
  template <int kIndex>
  static HWY_INLINE auto get(const T* p) {
    return hn::LoadU(kTag, p + kIndex * hn::Lanes(kTag));
  }
  template <class V>
  static HWY_INLINE void put(T* p, V v0, V v1, V v2, V v3) {
    const size_t lanes = hn::Lanes(kTag);
    hn::StoreU(v0, kTag, p);
    hn::StoreU(v1, kTag, p + lanes);
    hn::StoreU(v2, kTag, p + 2 * lanes);
    hn::StoreU(v3, kTag, p + 3 * lanes);
  }
  static HWY_INLINE auto factor(double value) { return hn::Set(kTag, static_cast<T>(value)); }
};

}  // namespace HWY_NAMESPACE
}  // namespace hccl_like
HWY_AFTER_NAMESPACE();

#endif  // per-target guard

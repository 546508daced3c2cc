#include "collectives/compression/compressed_messages.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {
namespace {

// Whole blocks that stay in the first cache, decoded and encoded.
constexpr size_t kPart = 64 * Codec::kBlock;
using PartOfFloats = std::array<float, kPart>;

// Calls visit(Region of whole elements, offset) for parts of at most kPart elements, each of which
// begins with a block; the last may end within one.
template <class Visit>
void each_part(size_t bytes, Visit&& visit) {
  for (size_t at = 0; at < bytes; at += kPart * sizeof(float))
    visit(at, std::min(bytes - at, kPart * sizeof(float)));
}

void copy_out(const Pieces& from, size_t at, size_t bytes, std::byte* to) {
  while (bytes > 0) {
    const Piece piece = from.from(at);
    const size_t now = std::min(bytes, piece.bytes);
    std::memcpy(to, piece.data, now);
    to += now, at += now, bytes -= now;
  }
}

void copy_in(const Pieces& to, size_t at, size_t bytes, const std::byte* from) {
  while (bytes > 0) {
    const Piece piece = to.from(at);
    const size_t now = std::min(bytes, piece.bytes);
    std::memcpy(piece.data, from, now);
    from += now, at += now, bytes -= now;
  }
}

// The part as one range of memory: in place, or else in `buffer`.
const std::byte* gathered(const Pieces& from, size_t at, size_t bytes, PartOfFloats& buffer) {
  const Piece piece = from.from(at);
  if (piece.bytes >= bytes) return piece.data;
  auto* const to = reinterpret_cast<std::byte*>(buffer.data());
  copy_out(from, at, bytes, to);
  return to;
}

}  // namespace

void CompressedMessages::begin(const Codec& codec, size_t bytes) {
  codec_ = &codec;
  used_ = 0;
  arrivals_.clear();  // a round that failed has left some
  if (memory_.size() < bytes) memory_.resize(bytes);
}

std::byte* CompressedMessages::take(size_t bytes) {
  std::byte* const taken = memory_.data() + used_;
  used_ += bytes;
  return taken;
}

void CompressedMessages::send(const Pieces& chunk, bool keeps, Pieces& message) {
  const size_t bytes = chunk.bytes(), encoded = codec_->bytes(bytes / sizeof(float));
  std::byte* const begin = take(encoded);
  message.add(begin, encoded);
  PartOfFloats buffer;
  std::byte* to = begin;
  each_part(bytes, [&](size_t at, size_t now) {
    const size_t elements = now / sizeof(float);
    codec_->encode(to, gathered(chunk, at, now, buffer), elements);
    if (keeps) {
      codec_->decode(reinterpret_cast<std::byte*>(buffer.data()), to, elements);
      copy_in(chunk, at, now, reinterpret_cast<std::byte*>(buffer.data()));
    }
    to += codec_->bytes(elements);
  });
}

void CompressedMessages::receive(Pieces into, Pieces operand, Combine combine, Pieces& message) {
  const size_t encoded = codec_->bytes(into.bytes() / sizeof(float));
  std::byte* const begin = take(encoded);
  message.add(begin, encoded);
  arrivals_.push_back({begin, std::move(into), std::move(operand), combine});
}

void CompressedMessages::finish() {
  PartOfFloats decoded, mine;
  auto* const incoming = reinterpret_cast<std::byte*>(decoded.data());
  for (const Arrival& arrival : arrivals_) {
    const std::byte* from = arrival.from;
    each_part(arrival.into.bytes(), [&](size_t at, size_t now) {
      const size_t elements = now / sizeof(float);
      const Piece target = arrival.into.from(at);
      const bool whole = target.bytes >= now;
      std::byte* const to = whole ? target.data : incoming;
      if (arrival.combine == nullptr) {
        codec_->decode(to, from, elements);
      } else {
        codec_->decode(incoming, from, elements);
        arrival.combine(to, gathered(arrival.operand, at, now, mine), incoming, elements);
      }
      if (!whole) copy_in(arrival.into, at, now, incoming);
      from += codec_->bytes(elements);
    });
  }
  arrivals_.clear();
}

void round_to_codec(const Codec& codec, const Pieces& from, const Pieces& to) {
  PartOfFloats buffer;
  auto* const floats = reinterpret_cast<std::byte*>(buffer.data());
  std::array<std::byte, kPart * sizeof(float)> encoded;
  each_part(from.bytes(), [&](size_t at, size_t now) {
    codec.encode(encoded.data(), gathered(from, at, now, buffer), now / sizeof(float));
    codec.decode(floats, encoded.data(), now / sizeof(float));
    copy_in(to, at, now, floats);
  });
}

}  // namespace hccl_like

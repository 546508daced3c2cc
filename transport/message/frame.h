#pragma once
// What a link writes on its wire: headers of one size, each followed by `payload` bytes, after a
// gap where that helps.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/device.h"
#include "transport/message/message.h"

namespace hccl_like {

static_assert(std::endian::native == std::endian::little,
              "frames are little-endian in memory and on the wire");

enum class FrameKind : uint8_t {
  kEager = 1,  // a whole message
  kAnnounce,   // a message that is too long to send unasked; the payload may be a Descriptor of
               // where it lies
  kReady,      // its receiver asks for it; the payload may be a Descriptor of where it shall go
  kData,       // a part of it
  kAbort,      // a communicator was given up; the payload says why
  kGoodbye,    // no further frame will come
  kCall,       // which call the sender is in, and waits for this rank in
};

struct FrameHeader {
  static constexpr uint16_t kMagic = 0x4c48;
  static constexpr uint8_t kVersion = 7;

  uint16_t magic = kMagic;
  uint8_t version = kVersion;
  FrameKind kind{};
  uint32_t payload = 0;  // bytes that follow
  Tag tag{};
  uint64_t fingerprint = 0;  // kData: the offset of the payload in the message
  uint64_t bytes = 0;        // of the message
};
static_assert(sizeof(FrameHeader) == 48 && std::is_trivially_copyable_v<FrameHeader>);

inline constexpr size_t kMostGap = 63;

// The bytes between a header and its payload that make the payload of a message begin where the
// wire's alignment() says. `at`: where the header begins, in bytes from the beginning of the link.
// Nothing before what is short, which takes less time than its line.
inline size_t gap_after(const FrameHeader& header, uint64_t at, size_t alignment) {
  constexpr uint32_t kLeastAligned = 1 << 10;
  const bool message = header.kind == FrameKind::kEager || header.kind == FrameKind::kData;
  return message && header.payload >= kLeastAligned ? -(at + sizeof header) % alignment : 0;
}

// A message's memory, for peers on this host.
struct Descriptor {
  uint64_t slot = 0;  // kAnnounce: the sender's, see rendezvous.h
  ExportedRange range;
};
static_assert(sizeof(Descriptor) == 152 && std::is_trivially_copyable_v<Descriptor>);

// An eager message is never longer, whatever the settings: the receiver may have to buffer it.
inline constexpr uint64_t kLongestEager = 64 << 20;
inline constexpr uint32_t kLongestText = 4096;
// Long messages are cut so that several of them, and small ones, take turns on the wire.
inline constexpr uint32_t kDataFrame = 1 << 20;

// Whether a header may come from a link of this version: what can be said without knowing the
// messages under way. Everything that is read from a wire passes this first.
inline bool plausible(const FrameHeader& header) {
  if (header.magic != FrameHeader::kMagic || header.version != FrameHeader::kVersion) return false;
  switch (header.kind) {
    case FrameKind::kEager:
      return header.payload == header.bytes && header.bytes <= kLongestEager;
    case FrameKind::kAnnounce:
    case FrameKind::kReady:
      return header.payload == 0 || header.payload == sizeof(Descriptor);
    case FrameKind::kGoodbye:
    case FrameKind::kCall:
      return header.payload == 0;
    case FrameKind::kData:
      return header.payload > 0 && header.payload <= header.bytes &&
             header.fingerprint <= header.bytes - header.payload;
    case FrameKind::kAbort:
      return header.payload <= kLongestText;
  }
  return false;
}

}  // namespace hccl_like

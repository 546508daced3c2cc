#pragma once
// Wire format of a link: fixed-size headers, each followed by an optional gap and `payload` bytes.
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
  kAnnounce,   // a message too long for eager; the payload may be a Descriptor of its memory
  kReady,      // the receiver requests it; the payload may be a Descriptor of the destination
  kData,       // a part of an announced message
  kAbort,      // a communicator was aborted; the payload is the reason
  kGoodbye,    // no further frame will come
  kCall,       // the call that the sender is in and in which it waits for this rank
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

// Size of the gap before a message payload, for the wire's alignment(). `at`: stream offset of the
// header. Short payloads get no gap: it would cost more than it saves.
inline size_t gap_after(const FrameHeader& header, uint64_t at, size_t alignment) {
  constexpr uint32_t kLeastAligned = 1 << 10;
  const bool message = header.kind == FrameKind::kEager || header.kind == FrameKind::kData;
  return message && header.payload >= kLeastAligned ? -(at + sizeof header) % alignment : 0;
}

// A message's memory, for local peers and remote reads.
struct Descriptor {
  uint64_t slot = 0;  // kAnnounce: the sender's, see rendezvous.h
  ExportedRange range;
};
static_assert(sizeof(Descriptor) == 152 && std::is_trivially_copyable_v<Descriptor>);

// Upper limit of eager messages, whatever the settings: the receiver may have to buffer them.
inline constexpr uint64_t kLongestEager = 64 << 20;
inline constexpr uint32_t kLongestText = 4096;
// Long messages are split so that several messages can share the wire.
inline constexpr uint32_t kDataFrame = 1 << 20;

// Whether a link of this version can have sent the header, judged without the messages in flight.
// Every header read from a wire must pass this check first.
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

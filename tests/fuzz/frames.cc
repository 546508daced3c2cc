#include "tests/fuzz/frames.h"

#include <array>
#include <memory>

#include "tests/fuzz/bytes_wire.h"
#include "transport/frame.h"
#include "transport/link.h"

namespace hccl_like::fuzz {
namespace {

constexpr size_t kEager = 64, kLong = 300;

Tag tag(uint32_t number) { return {.communicator = 7, .sequence = number}; }

template <class T>
void append(Bytes& bytes, const T& value) {
  const auto* from = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}

void append(Bytes& bytes, FrameKind kind, uint32_t number, uint32_t payload, uint64_t size,
            uint64_t fingerprint = 5) {
  append(bytes, FrameHeader{.kind = kind,
                            .payload = payload,
                            .tag = tag(number),
                            .fingerprint = fingerprint,
                            .bytes = size});
  bytes.insert(bytes.end(), payload, static_cast<uint8_t>(number));
}

}  // namespace

// Two receives and two sends of known tags wait, a short and a long one each.
void frames(Input input) {
  std::array<std::array<std::byte, kLong>, 4> memory{};
  uint32_t pending = 4;
  std::array<Recv, 2> recvs;
  std::array<Send, 2> sends;
  Link link(std::make_unique<BytesWire>(input),
            {.eager_bytes = kEager, .turn_bytes = 4096, .early_bytes_limit = 4096});
  for (uint32_t i = 0; i < 2; ++i) {
    const size_t bytes = i == 0 ? kEager : kLong;
    const auto post = [&](auto& message, uint32_t number) {
      message.tag = tag(number);
      message.fingerprint = 5;
      message.bytes = bytes;
      message.pending = &pending;
      link.post(message);
    };
    recvs[i].into.add(memory[i].data(), bytes);
    sends[i].from.add(memory[2 + i].data(), bytes);
    post(recvs[i], i);
    post(sends[i], 2 + i);
  }
  for (int steps = 0; link.progress(); ++steps) {
    while (link.take_abort()) {
    }
    while (link.take_mismatch()) {
    }
    while (link.take_call()) {
    }
    require(steps < 100'000, "a link that never comes to an end");
    if (link.failure() != nullptr) break;
  }
  size_t bytes = 0;
  link.arrived(tag(9), &bytes);
  link.find_stray(7, [](uint32_t) { return 5; });
  link.cancel(7);
  require(pending <= 4, "a message was done twice");
}

std::vector<Bytes> frame_seeds() {
  Bytes all;
  append(all, FrameKind::kEager, 0, kEager, kEager);
  append(all, FrameKind::kAnnounce, 1, 0, kLong);
  append(all, FrameKind::kReady, 3, 0, kLong);
  append(all, FrameKind::kData, 1, 100, kLong, 0);
  append(all, FrameKind::kData, 1, 200, kLong, 100);
  append(all, FrameKind::kEager, 9, 10, 10);
  append(all, FrameKind::kCall, 9, 0, 10);
  append(all, FrameKind::kAbort, 9, 20, 0);
  append(all, FrameKind::kGoodbye, 0, 0, 0);
  Bytes described;
  append(described, FrameHeader{.kind = FrameKind::kAnnounce,
                                .payload = sizeof(Descriptor),
                                .tag = tag(1),
                                .fingerprint = 5,
                                .bytes = kLong});
  append(described, Descriptor{});
  append(described, FrameHeader{.kind = FrameKind::kReady,
                                .payload = sizeof(Descriptor),
                                .tag = tag(3),
                                .fingerprint = 5,
                                .bytes = kLong});
  append(described, Descriptor{});
  append(described, FrameHeader{.kind = FrameKind::kLend,
                                .payload = sizeof(Descriptor),
                                .tag = tag(4),
                                .fingerprint = 5,
                                .bytes = kLong});
  append(described, Descriptor{});
  Bytes early;
  for (uint32_t i = 10; i < 30; ++i) append(early, FrameKind::kEager, i, i, i);
  return {all, described, early};
}

}  // namespace hccl_like::fuzz

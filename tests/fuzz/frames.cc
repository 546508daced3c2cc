#include "tests/fuzz/frames.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "tests/fuzz/bytes_wire.h"
#include "transport/link/inbox.h"
#include "transport/link/link.h"
#include "transport/link/outbox.h"
#include "transport/link/traffic.h"
#include "transport/message/fifo.h"
#include "transport/message/frame.h"
#include "transport/rendezvous/rendezvous.h"

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

void append_described(Bytes& bytes, FrameKind kind, uint32_t number, uint64_t slot) {
  append(bytes, FrameHeader{.kind = kind,
                            .payload = sizeof(Descriptor),
                            .tag = tag(number),
                            .fingerprint = 5,
                            .bytes = kLong});
  append(bytes, Descriptor{.slot = slot});
}

// Takes every receive, and lets an Inbox do no more with its slots than both rendezvous can bear.
class FewSlots final : public Rendezvous {
 public:
  bool can_send(const Send&) const override { return false; }
  bool can_receive(const Recv&) const override { return true; }
  ExportedRange receive_range(const Recv&) const override { return {}; }
  std::optional<uint32_t> offer(Send&) override { return std::nullopt; }
  ExportedRange send_range(uint32_t) const override { return {}; }
  void begin_send(uint32_t, const ExportedRange&) override {}
  void retract(uint32_t) override {}
  bool may_begin(uint64_t slot) const override {
    return slot < recvs_.size() && recvs_[slot] == nullptr;
  }
  void begin_receive(Recv& recv, uint32_t slot, const ExportedRange&) override {
    require(may_begin(slot), "a slot is begun that is in use or does not exist");
    recvs_[slot] = &recv;
  }
  void decline(uint32_t slot) override {
    require(slot < recvs_.size(), "no such slot is declined");
  }
  void end_receive(const Recv& recv) override { std::ranges::replace(recvs_, &recv, nullptr); }
  bool progress(bool) override { return false; }
  bool sends() const override { return false; }
  bool could_advance() override { return false; }
  void cancel(std::optional<uint64_t>, bool) override { recvs_.fill(nullptr); }

 private:
  std::array<const Recv*, 3> recvs_{};
};

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

// Receives with even numbers are posted as soon as their messages are known, those with odd ones
// when no more bytes come.
void slots(Input input) {
  constexpr uint32_t kRecvs = 6;
  std::array<std::array<std::byte, kLong>, kRecvs> memory{};
  std::array<Recv, kRecvs> recvs;
  uint32_t pending = kRecvs;
  BytesWire wire(input);
  FewSlots rendezvous;
  Fifo<Link::Mismatch> mismatches;
  const LinkOptions options{.eager_bytes = kEager, .turn_bytes = 64, .early_bytes_limit = 4096};
  Traffic traffic;
  Outbox outbox(wire, rendezvous, options, mismatches, traffic);
  Inbox inbox(wire, outbox, rendezvous, options, mismatches, traffic);
  const auto post = [&](uint32_t number) {
    size_t bytes = 0;
    Recv& recv = recvs[number];
    if (recv.bytes > 0 || !inbox.arrived(tag(number), &bytes)) return;
    recv.into.add(memory[number].data(), kLong);
    recv.tag = tag(number);
    recv.fingerprint = 5;
    recv.bytes = kLong;
    recv.pending = &pending;
    inbox.post(recv);
  };
  while (inbox.progress() && inbox.failure() == nullptr)
    for (uint32_t number = 0; number < kRecvs; number += 2) post(number);
  for (uint32_t number = 1; number < kRecvs && inbox.failure() == nullptr; number += 2)
    post(number);
  require(pending <= kRecvs, "a message was done twice");
  rendezvous.cancel(7, true);
  inbox.cancel(7);
}

std::vector<Bytes> slots_seeds() {
  Bytes each, two, twice;
  for (uint32_t i = 0; i < 3; ++i) append_described(each, FrameKind::kAnnounce, i, i);
  append(each, FrameKind::kData, 1, 100, kLong, 0);
  append_described(two, FrameKind::kAnnounce, 1, 0);
  append_described(two, FrameKind::kAnnounce, 2, 1);
  for (const uint32_t number : {1, 3}) append_described(twice, FrameKind::kAnnounce, number, 0);
  return {each, two, twice};
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
  append_described(described, FrameKind::kAnnounce, 1, 0);
  append_described(described, FrameKind::kReady, 3, 0);
  append_described(described, FrameKind::kAnnounce, 4, 0);
  Bytes early;
  for (uint32_t i = 10; i < 30; ++i) append(early, FrameKind::kEager, i, i, i);
  return {all, described, early};
}

}  // namespace hccl_like::fuzz

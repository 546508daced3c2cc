#pragma once
// Test fixture: two links over a pair of wires. `Wires` is as in wire_contract.h.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/deadline.h"
#include "transport/link/link.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {

template <class Wires>
class LinkPair : public testing::Test {
 protected:
  using Bytes = std::vector<std::byte>;
  static constexpr size_t kEager = 1024;
  static constexpr size_t kLong = (1 << 20) + 3;
  static constexpr uint64_t kCommunicator = 0x1122334455667788u;

  LinkPair() { connect({.eager_bytes = kEager}, {.eager_bytes = kEager}); }

  void connect(LinkOptions a, LinkOptions b) {
    links[0].reset();
    links[1].reset();
    wires = Wires::make();
    links[0] = std::make_unique<Link>(std::move(wires.ends[0]), a);
    links[1] = std::make_unique<Link>(std::move(wires.ends[1]), b);
  }

  Link& a() { return *links[0]; }
  Link& b() { return *links[1]; }

  void step() {
    for (auto& link : links)
      if (link != nullptr) link->progress();
    if (++steps % 8 == 0)
      for (auto& poller : wires.pollers) poller->poll();
  }
  // Drives both ends until `stop` returns true. Fails the test after 60 s.
  void run(const std::function<bool()>& stop) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!stop()) {
      for (int i = 0; i < 16; ++i) step();
      ASSERT_FALSE(deadline.expired()) << "nothing happens any more";
    }
  }
  void run_until_done() {
    run([&] { return pending == 0; });
  }
  // Drives both ends long enough for an unwanted event to occur.
  void settle() {
    for (int i = 0; i < 2000; ++i) step();
  }

  Send& send(Link& link, Tag tag, std::byte* data, size_t bytes, uint64_t fingerprint = 1) {
    Send& message = sends.emplace_back();
    message.from.add(data, bytes);
    return post(link, message, tag, bytes, fingerprint);
  }
  Recv& recv(Link& link, Tag tag, std::byte* data, size_t bytes, uint64_t fingerprint = 1) {
    Recv& message = recvs.emplace_back();
    message.into.add(data, bytes);
    return post(link, message, tag, bytes, fingerprint);
  }
  template <class Message>
  Message& post(Link& link, Message& message, Tag tag, size_t bytes, uint64_t fingerprint = 1) {
    message.tag = tag;
    message.bytes = bytes;
    message.fingerprint = fingerprint;
    message.pending = &pending;
    ++pending;
    link.post(message);
    return message;
  }
  static Tag tag(uint32_t sequence, uint64_t communicator = kCommunicator) {
    return {.communicator = communicator, .sequence = sequence};
  }
  // Whether part of the message has moved, on any path.
  static bool begun(const Send& send, const Bytes& into) {
    return send.moved > 0 || into.front() != std::byte{0xee};
  }
  Bytes fresh(size_t bytes) { return Bytes(bytes, std::byte{0xee}); }

  WirePair wires;
  std::array<std::unique_ptr<Link>, 2> links;
  std::deque<Send> sends;
  std::deque<Recv> recvs;
  uint32_t pending = 0;
  uint64_t steps = 0;
};

}  // namespace hccl_like

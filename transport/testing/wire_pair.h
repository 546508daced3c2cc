#pragma once
// Test fixture: two connected ends of a wire.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/deadline.h"
#include "transport/wire/poller.h"
#include "transport/wire/wire.h"

namespace hccl_like {

struct WirePair {
  std::array<std::unique_ptr<Poller>, 2> pollers{std::make_unique<Poller>(),
                                                 std::make_unique<Poller>()};
  std::array<std::unique_ptr<Wire>, 2> ends;
};

// Byte `i` of a test stream without repetitions, so that lost, doubled or swapped bytes show.
inline std::byte stream_byte(uint64_t i) {
  uint64_t h = (i / 8) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9u;
  return static_cast<std::byte>(h >> (8 * (i % 8)));
}

inline std::vector<std::byte> stream_bytes(uint64_t begin, size_t bytes) {
  std::vector<std::byte> result(bytes);
  for (size_t i = 0; i < bytes; ++i) result[i] = stream_byte(begin + i);
  return result;
}

template <class Wires>
class WireTest : public ::testing::Test {
 protected:
  static constexpr size_t kMany = 5'000'003;
  WireTest() : pair(Wires::make()) {}

  Wire& a() { return *pair.ends[0]; }
  Wire& b() { return *pair.ends[1]; }
  void poll() {
    for (auto& poller : pair.pollers)
      if (poller != nullptr) poller->poll();
  }

  // Repeats `attempt` until it returns true. After 20 s the test fails.
  template <class Attempt>
  void patiently(Attempt attempt) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!attempt()) {
      poll();
      if (!deadline.expired()) continue;
      ADD_FAILURE() << "nothing happens any more";
      return;
    }
  }

  static size_t write(Wire& wire, std::span<const std::byte> bytes) {
    const ConstRegion region{bytes.data(), bytes.size()};
    return wire.write({&region, 1});
  }
  void write_all(Wire& wire, uint64_t begin, size_t bytes) {
    const std::vector<std::byte> data = stream_bytes(begin, bytes);
    size_t done = 0;
    patiently([&] {
      done += write(wire, std::span(data).subspan(done));
      return done == bytes;
    });
    ASSERT_EQ(done, bytes);
  }
  void read_all(Wire& wire, uint64_t begin, size_t bytes) {
    std::vector<std::byte> data(bytes);
    size_t done = 0;
    patiently([&] {
      done += wire.read(std::span(data).subspan(done));
      return done == bytes;
    });
    ASSERT_EQ(done, bytes);
    ASSERT_TRUE(data == stream_bytes(begin, bytes));
  }
  // Writes `endless` repeatedly until the wire is full. Returns the number of bytes.
  uint64_t fill_a() {
    uint64_t written = 0;
    int refused = 0;
    while (refused < 1000 && written < (uint64_t{1} << 30)) {
      const size_t taken = write(a(), std::span(endless).subspan(written % endless.size()));
      written += taken;
      refused = taken == 0 ? refused + 1 : 0;
      poll();
    }
    EXPECT_EQ(refused, 1000) << "a wire must have an end";
    return written;
  }
  // Drives both ends: bytes of a() may leave only when b() makes progress.
  void flush_a() {
    patiently([&] { return b().peek(), a().flush(); });
  }
  std::span<const std::byte> peek_until(Wire& wire, size_t want) {
    std::span<const std::byte> view;
    patiently([&] {
      view = wire.peek(want);
      return view.size() >= want;
    });
    return view;
  }

  WirePair pair;
  const std::vector<std::byte> endless = stream_bytes(0, 1 << 20);
};

}  // namespace hccl_like

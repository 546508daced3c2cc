#include "transport/security/sealed_wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>

#include "core/base/error.h"
#include "transport/bootstrap/connector.h"
#include "transport/bootstrap/listener.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/testing/read_shown.h"
#include "transport/testing/sim_wire.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {
namespace {

const Key kSession = Key::from_secret("session");

void seal(WirePair& pair, uint64_t frames_a_key) {
  for (size_t i = 0; i < 2; ++i)
    pair.ends[i] = std::make_unique<SealedWire>(std::move(pair.ends[i]), kSession,
                                                i == 0 ? WireSide::kConnector : WireSide::kAcceptor,
                                                "node7", frames_a_key);
}

struct SealedTcpWires {
  static constexpr bool kThreads = true;
  static WirePair make() {
    WirePair pair;
    const Address loopback = *Address::parse("127.0.0.1");
    Listener listener = Listener::tcp(loopback, {});
    const Way way = way_to(loopback, listener.port());
    std::array<Fd, 2> sockets{Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), Fd()};
    if (::connect(sockets[0].get(), reinterpret_cast<const sockaddr*>(&way.address), way.length) !=
        0)
      throw_system("cannot connect to loopback");
    while (!sockets[1].valid()) sockets[1] = listener.accept().socket;
    for (size_t i = 0; i < 2; ++i)
      pair.ends[i] = std::make_unique<TcpWire>(
          std::move(sockets[i]), *pair.pollers[i],
          TcpOptions{.socket_buffer_bytes = 1, .receive_buffer_bytes = 8192, .congestion = {}},
          "a test:1");
    seal(pair, 7);
    return pair;
  }
};
struct SealedSimWires {
  static constexpr bool kThreads = false;
  static WirePair make() {
    SimPair sim = make_sim_pair({.capacity = 200'000, .chunk = 1000, .delay = 5});
    WirePair pair;
    pair.pollers = {};
    pair.ends = {std::move(sim.a), std::move(sim.b)};
    seal(pair, 3);
    return pair;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(SealedTcp, WireContract, SealedTcpWires);
INSTANTIATE_TYPED_TEST_SUITE_P(SealedSim, WireContract, SealedSimWires);

// A wire whose bytes lie open to whoever wants to change them on their way.
class OpenWire final : public Wire {
 public:
  OpenWire(std::vector<std::byte>& in, std::vector<std::byte>& out)
      : Wire("open"), in_(in), out_(out) {}
  size_t write(std::span<const ConstRegion> pieces) override {
    size_t taken = 0;
    for (const ConstRegion& piece : pieces) {
      const size_t part = std::min(piece.bytes, room - taken);
      out_.insert(out_.end(), piece.data, piece.data + part);
      taken += part;
    }
    room -= taken;
    return taken;
  }
  std::span<const std::byte> peek(size_t) override { return in_; }
  void release(size_t bytes) override {
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  size_t read(std::span<std::byte> into) override { return read_shown(*this, into); }
  const Error* failure() const override { return nullptr; }
  bool flush() override { return true; }
  bool prepare_sleep(WakeFor) override { return true; }
  void end_sleep() override {}

  size_t room = SIZE_MAX;

 private:
  std::vector<std::byte>&in_, &out_;
};

// The connector writes, and what arrives at the acceptor is what a test makes of it.
struct Street {
  explicit Street(const Key& key = kSession, uint64_t frames_a_key = SealingKey::kFramesAKey) {
    auto own = std::make_unique<OpenWire>(nothing, way);
    wire = own.get();
    from = std::make_unique<SealedWire>(std::move(own), kSession, WireSide::kConnector, "node7",
                                        frames_a_key);
    to = std::make_unique<SealedWire>(std::make_unique<OpenWire>(way, back), key,
                                      WireSide::kAcceptor, "node7", frames_a_key);
  }
  size_t write(std::string_view text) {
    const ConstRegion region{reinterpret_cast<const std::byte*>(text.data()), text.size()};
    return from->write({&region, 1});
  }
  std::string read(size_t bytes = 1000) {
    std::string text(bytes, '\0');
    text.resize(to->read(std::as_writable_bytes(std::span(text.data(), text.size()))));
    return text;
  }
  std::string failure() const { return to->failure() == nullptr ? "" : to->failure()->message; }
  std::vector<std::byte> nothing, back, way;
  OpenWire* wire;
  std::unique_ptr<SealedWire> from, to;
};

TEST(SealedWire, ShowsNothingOfWhatItCarries) {
  Street way;
  const std::string text = "a tensor of great importance, twice a tensor of great importance";
  EXPECT_EQ(way.write(text), text.size());
  EXPECT_EQ(way.way.size(), text.size() + SealedWire::kHead + SealingKey::kTag);
  const std::string on_the_way(reinterpret_cast<const char*>(way.way.data()), way.way.size());
  EXPECT_EQ(on_the_way.find("tensor"), std::string::npos);
  EXPECT_EQ(way.read(), text);
  way.write(text);
  EXPECT_NE(std::string(reinterpret_cast<const char*>(way.way.data()), way.way.size()), on_the_way);
}

TEST(SealedWire, EveryBitThatIsWrongEndsTheConnectionNamingThePeer) {
  const std::string text = "0123456789";
  const size_t frame = text.size() + SealedWire::kHead + SealingKey::kTag;
  for (size_t bit = 0; bit < 8 * frame; ++bit) {
    Street way;
    way.write(text);
    way.way[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_EQ(way.read(), "") << "bit " << bit;
    const bool head = bit < 8 * SealedWire::kHead;
    EXPECT_EQ(way.failure(),
              std::string("the encrypted connection to node7 is given up: ") +
                  (head ? "what arrived was not sealed by the peer, or not in this order"
                        : "what arrived was changed on its way"))
        << "bit " << bit;
    EXPECT_EQ(way.to->failure()->code, ErrorCode::kPeerLost);
  }
}

TEST(SealedWire, FramesThatAreSwappedDroppedOrRepeatedEndTheConnection) {
  using Bytes = std::vector<std::byte>;
  const auto tampered = [](const std::function<Bytes(Bytes, Bytes)>& with) {
    Street way;
    way.write("first");
    const Bytes first = std::exchange(way.way, {});
    way.write("other");
    const Bytes second = std::exchange(way.way, {});
    way.way = with(first, second);
    const std::string heard = way.read();
    return heard + "|" + (way.failure().empty() ? "" : "ended");
  };
  const auto both = [](Bytes a, const Bytes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  EXPECT_EQ(tampered([&](Bytes a, Bytes b) { return both(a, b); }), "firstother|");
  EXPECT_EQ(tampered([&](Bytes a, Bytes b) { return both(b, a); }), "|ended");
  EXPECT_EQ(tampered([&](Bytes, Bytes b) { return b; }), "|ended");
  EXPECT_EQ(tampered([&](Bytes a, Bytes) { return both(a, a); }), "first|ended");
  EXPECT_EQ(tampered([&](Bytes a, Bytes b) {  // the head of one with the bytes of the other
              std::copy(b.begin() + SealedWire::kHead, b.end(), a.begin() + SealedWire::kHead);
              return a;
            }),
            "|ended");
}

TEST(SealedWire, FramesOfAnotherConnectionOrOfTheOtherEndAreRefused) {
  Street other(Key::from_secret("another session"));
  other.write("text");
  EXPECT_EQ(other.read(), "");
  EXPECT_NE(other.failure(), "");
  // Reflected to its writer.
  Street way;
  way.write("text");
  way.nothing = way.way;
  std::array<std::byte, 8> heard;
  EXPECT_EQ(way.from->read(heard), 0u);
  EXPECT_NE(way.from->failure(), nullptr);
}

TEST(SealedWire, ALengthThatNobodyProvedIsNotWaitedFor) {
  Street way;
  way.way.assign(SealedWire::kHead, std::byte{0});
  way.way[1] = std::byte{0xff};
  EXPECT_EQ(way.read(), "");
  EXPECT_NE(way.failure(), "");
  EXPECT_EQ(way.write("after the end"), 13u) << "the other end is told by the connection's end";
}

TEST(SealedWire, GoesOnWithANewKeyBeforeTheCountIsAtItsEnd) {
  Street way(kSession, 2);
  std::vector<std::vector<std::byte>> frames;
  for (int i = 0; i < 9; ++i) {
    way.write("the same text");
    frames.push_back(way.way);
    EXPECT_EQ(way.read(), "the same text");
    for (size_t j = 0; j + 1 < frames.size(); ++j) EXPECT_NE(frames[j], frames.back());
  }
  // The count begins anew, so an old frame has the nonce that is expected, and another key.
  way.way = frames[0];
  EXPECT_EQ(way.read(), "");
  EXPECT_NE(way.failure(), "");
}

TEST(SealedWire, AFrameWithoutRoomIsNotTakenUntilItIsOnItsWay) {
  Street way;
  way.wire->room = 10;
  EXPECT_EQ(way.write("0123456789"), 0u);
  EXPECT_FALSE(way.from->flush());
  EXPECT_EQ(way.write("0123456789"), 0u);
  EXPECT_EQ(way.read(), "");
  way.wire->room = 1000;
  EXPECT_EQ(way.write("0123456789+"), 11u);
  EXPECT_TRUE(way.from->flush());
  EXPECT_EQ(way.write("ab"), 2u);
  EXPECT_EQ(way.read(), "0123456789+ab");
}

}  // namespace
}  // namespace hccl_like

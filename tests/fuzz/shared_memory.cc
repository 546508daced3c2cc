#include "tests/fuzz/shared_memory.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/fd.h"
#include "transport/rendezvous/rendezvous_slot.h"
#include "transport/shm/fd_message.h"
#include "transport/shm/handshake.h"
#include "transport/shm/ring.h"

namespace hccl_like::fuzz {
namespace {

constexpr size_t kRing = 64;

// Takes the next bytes of the input as a number; what is missing is zeros.
template <class Number>
Number take(Input& input) {
  Number number{};
  const size_t bytes = std::min(input.size(), sizeof number);
  if (bytes > 0) std::memcpy(&number, input.data(), bytes);
  input = input.subspan(bytes);
  return number;
}

// Overwrites a random place in shared memory.
template <class Shared>
void damage(Shared& shared, Input& input) {
  const size_t at = take<uint16_t>(input) % (sizeof shared - sizeof(uint64_t));
  const auto value = take<uint64_t>(input);
  std::memcpy(reinterpret_cast<std::byte*>(&shared) + at, &value, sizeof value);
}

}  // namespace

void ring(Input input) {
  RingIndices indices;
  const std::unique_ptr<std::byte[]> memory(new std::byte[2 * kRing]{});
  RingWriter writer(indices, memory.get(), kRing);
  RingReader reader(indices, memory.get(), kRing);
  std::array<std::byte, kRing> some{};
  while (!input.empty()) {
    const auto what = take<uint8_t>(input);
    const size_t bytes = what / 8u;
    switch (what % 8) {
      case 0:
        damage(indices, input);
        break;
      case 1: {
        const size_t room = writer.space(bytes);
        require(room <= kRing, "more room than there is");
        writer.put(some.data(), std::min(bytes, room));
        break;
      }
      case 2:
        writer.publish();
        break;
      case 3: {
        const size_t shown = reader.available(bytes);
        require(shown <= kRing, "more bytes than fit");
        std::memcpy(some.data(), reader.data(), shown);
        reader.drop(std::min(bytes, shown));
        break;
      }
      case 4:
        reader.publish();
        break;
      case 5:
        reader.prepare_sleep(std::max<size_t>(bytes, 1));
        reader.end_sleep();
        break;
      case 6:
        writer.prepare_sleep();
        writer.end_sleep();
        break;
      case 7:
        writer.must_wake_reader();
        break;
    }
    require(!writer.damaged() || writer.space() == 0, "a damaged ring is written to");
    require(!reader.damaged() || reader.available() == 0, "a damaged ring is read from");
  }
}

std::vector<Bytes> ring_seeds() {
  return {{8 * 20 + 1, 2, 8 * 20 + 3, 4, 8 * 31 + 1, 2, 6, 8 * 31 + 3, 4, 5},
          {8 * 9 + 1, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 8 * 9 + 3, 4}};
}

void slot(Input input) {
  RendezvousSlot shared{};
  const Blocks cut(1 + take<uint64_t>(input) % (size_t{1} << 40));
  const size_t message = [&] {
    const Block last = cut.from(End::kReceiver, cut.count() - 1);
    return last.begin + last.bytes;
  }();
  if (cut.count() > Blocks::kMost) return;
  std::array<Claims, 2> ends{Claims(shared, End::kSender), Claims(shared, End::kReceiver)};
  while (!input.empty()) {
    const auto what = take<uint8_t>(input);
    const End end = what % 2 == 0 ? End::kSender : End::kReceiver;
    Claims& claims = ends[what % 2];
    switch (what / 2 % 6) {
      case 0:
        damage(shared, input);
        break;
      case 1:
        if (const auto number = claims.take(cut.count())) {
          require(*number < cut.count(), "a block that there is not");
          const Block block = cut.from(end, *number);
          require(block.begin < message && block.bytes <= message - block.begin,
                  "a block beyond its message");
        }
        break;
      case 2:
        claims.count();
        break;
      case 3:
        claims.close();
        require(!claims.may_take(cut.count()), "a block can be taken of what is closed");
        break;
      case 4:
        claims.refuse();
        break;
      case 5:
        claims.complete(cut.count());
        claims.other_works();
        claims.other_refuses();
        break;
    }
  }
}

std::vector<Bytes> slot_seeds() {
  return {{0, 0, 16, 0, 0, 0, 0, 0, 2, 4, 3, 5, 2, 4, 10, 11, 6},
          {255, 255, 255, 255, 255, 1, 0, 0, 2, 3, 0, 0, 0, 255, 255, 255, 0, 0, 0, 0, 0, 2, 3}};
}

// The first byte: the side, and what descriptors come along; then the peer's bytes.
void handshake(Input input) {
  static const ShmSegment kMemory = ShmSegment::create(round_ring_bytes(1));
  static const Fd kDoorbell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      kFile(::open("/dev/null", O_RDWR | O_CLOEXEC));
  static const Commons kCommons;
  static Poller poller;
  std::array<int, 2> sockets{-1, -1};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets.data()) == 0,
          "no sockets");
  const Fd peer(sockets[1]);
  const auto what = take<uint8_t>(input);
  const auto side = what % 8 == 0 ? ShmHandshake::Side::kConnector : ShmHandshake::Side::kAcceptor;
  std::vector<int> fds;
  if ((what & 8) != 0) fds.push_back(kMemory.fd());
  if ((what & 16) != 0) fds.push_back(kDoorbell.get());
  if ((what & 32) != 0) fds.push_back(kCommons.fd());
  if ((what & 64) != 0) fds.push_back(kFile.get());
  if ((what & 128) != 0) std::ranges::reverse(fds);
  ShmHandshake one(Fd{sockets[0]}, side, 4096, poller);
  if (side == ShmHandshake::Side::kConnector) one.step();
  if (!input.empty()) send_with_fds(peer.get(), std::as_bytes(input), fds);
  if (!one.step()) return;  // waits for more
  const std::unique_ptr<Wire> wire = one.take();
  require(wire || !one.cause().empty(), "a handshake that fails without a word");
}

std::vector<Bytes> handshake_seeds() {
  Bytes offer{1 + 8 + 16, 'h', 'c', 'c', 'l', 's', 'h', 'm', '2', 0, 16, 0, 0, 0, 0, 0, 0};
  Bytes shows = offer, reply = offer;
  shows[0] |= 32;
  reply[0] = 16;
  reply[10] = 0;
  return {offer, shows, reply};
}

}  // namespace hccl_like::fuzz

#pragma once
// Blocks to one peer, in order and each once. One of several network cards carries them; another
// one takes over when it fails.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/deadline.h"
#include "transport/blocks/block_port.h"
#include "transport/blocks/card_health.h"
#include "transport/wire/wire.h"

namespace hccl_like {

// Blocks with payload are numbered. The receiver takes the block with the number that it expects
// and drops all others. It confirms how many it has read with the blocks of the other direction or,
// once half of the receives wait, alone. A sender keeps a block in its slot until it is confirmed,
// and has no more unconfirmed blocks than receives are posted. The library thus never buffers
// unexpected messages.
//
// Both ends send over card `epoch % cards`. An end that finds this card broken goes on to an epoch
// whose card works, and sends all unconfirmed blocks again there. The other end follows when a
// block of a later epoch arrives. Where no card is left, the last one is tried again for a while.
// The answer to a ping says which block is expected: an end sends again what was lost without an
// error, over the same card.
//
// Used by one thread at a time; nothing blocks but say_goodbye().
class BlockChannel {
 public:
  // A block that has arrived: where its unread payload is.
  struct Arrival {
    size_t card, slot;
    size_t begin, end;
  };

  // `ports`: one for each card, the preferred one first, in the same order at both ends. `title`
  // is for messages: "fabric connection to hostb". Posts the receives.
  BlockChannel(std::vector<std::unique_ptr<BlockPort>> ports, BlockShape shape, std::string title,
               const CardTimes& times = {});

  // Room for the payload of the next block; empty if there is none now.
  std::span<std::byte> room() const;
  // Sends the first `bytes` bytes (> 0) of room().
  void send(size_t bytes);
  void progress();
  // Tells the peer that no block follows, and waits until `deadline` for all blocks to leave.
  void say_goodbye(Deadline deadline);

  // Oldest first. The reader advances `begin`, and pops a block that is read.
  std::deque<Arrival>& arrivals() { return arrivals_; }
  const std::deque<Arrival>& arrivals() const { return arrivals_; }
  void pop_arrival();
  std::span<const std::byte> unread(const Arrival& one) const;
  BlockPort& port(size_t card) const { return *cards_[card]->port; }
  size_t cards() const { return cards_.size(); }

  // Whether all blocks have left without a further call.
  bool all_sent() const;
  // Why no block can arrive any more; empty while blocks can.
  const std::string& ended() const { return ended_; }
  // Ends the channel. Blocks that have arrived can still be read.
  void end(std::string_view why);

  // Whether a card works, as far as is known.
  bool works(size_t card) const { return health_.works(card); }
  // Something else than a block is lost there. Its blocks go over another card.
  void take_out(size_t card, const std::string& why);
  // Something else than a block is silent there. watch() finds out whether the card is.
  void suspect(size_t card) { health_.suspect(card, times_.now()); }
  // Looks at the clock. progress() calls it from time to time.
  void watch();
  // progress() calls it at the end that notices a failure.
  RailsChanged& rails_changed() { return rails_changed_; }

 private:
  using Time = CardTimes::Time;
  enum class Kind : uint8_t { kBytes, kConfirmation, kGoodbye, kPing, kPong };
  struct Header {
    uint32_t bytes;      // of payload
    uint32_t confirmed;  // blocks with payload that the sender of this header has read
    Kind kind;
    uint8_t reserved;
    uint16_t epoch;
    uint32_t number;  // of a block with payload, or of a ping
  };
  struct Card final : BlockSink {
    Card(BlockChannel& whole, size_t number, std::unique_ptr<BlockPort> its, size_t slots);
    void sent(size_t slot) override;
    void arrived(size_t slot) override { channel.arrived(*this, slot); }
    size_t take_slot();      // requires a free one
    void drop(size_t slot);  // one use less

    BlockChannel& channel;
    const size_t index;
    const std::unique_ptr<BlockPort> port;
    std::vector<size_t> free;   // send slots
    std::vector<uint8_t> uses;  // of a send slot: the library's, and that it keeps a block
    size_t in_flight = 0;
    std::optional<uint32_t> to_answer{};  // the peer's last ping
    uint32_t sent_before_ping = 0;        // number of the next block at this end's last ping
  };
  struct Unconfirmed {
    Card* card;
    size_t slot, bytes;
    uint32_t number;
  };

  struct Outage {  // since no card worked
    Time begun;
    std::string why;
  };

  Card& current() const { return *cards_[epoch_ % cards_.size()]; }
  void post(Card& card, size_t slot, Kind kind, uint32_t number, size_t payload = 0);
  void arrived(Card& card, size_t slot);
  bool take(Card& card, size_t slot, const Header& header);
  bool confirm(uint32_t confirmed);
  void hear_pong(Card& card, size_t slot, const Header& header);
  void answer_and_confirm();
  void switch_to(uint16_t epoch);
  void send_again();
  void mend(Time now);
  void tell_rails();

  const BlockShape shape_;
  const std::string title_;
  const CardTimes times_;
  CardHealth health_;
  std::vector<std::unique_ptr<Card>> cards_;
  uint16_t epoch_ = 0;

  std::deque<Unconfirmed> unconfirmed_;  // oldest first
  size_t sent_here_ = 0;  // the first of them that were sent in this epoch; mostly all
  uint32_t number_ = 0;   // of the next block

  std::deque<Arrival> arrivals_;
  uint32_t expected_ = 0;         // number of the next block to arrive
  uint32_t read_ = 0, told_ = 0;  // blocks read, and what the peer was told of that
  std::string ended_;

  unsigned turn_ = 0;
  // Since the last look at the clock: a block has arrived, a block was confirmed.
  bool heard_ = false, moved_ = false;
  std::optional<Time> last_heard_;
  Time last_moved_, next_mend_{};
  std::optional<Outage> outage_;

  RailsChanged rails_changed_;
  bool changed_ = false;  // since it was told
  uint32_t replaced_ = 0;
};

}  // namespace hccl_like

#pragma once
// Which network cards to a peer work: a decision from pings, errors and the time. Sends nothing.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hccl_like {

struct CardTimes {
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  // Unconfirmed blocks for so long cause pings.
  std::chrono::milliseconds silence{500};
  // How much later than the other card's answer the one of the suspect may come.
  std::chrono::milliseconds answer{300};
  // The pause between two attempts to take a card back doubles between these.
  std::chrono::milliseconds first_retry{5'000}, last_retry{60'000};
  // While no card works: the pause between attempts, and from the last sign of life until the peer
  // counts as lost.
  std::chrono::milliseconds mend{100}, outage{5'500};
  Time (*now)() = &Clock::now;
  unsigned turns = 32;  // of progress() for each look at the clock
};

// A card that loses what it sends without an error is found by pings over it and over another one:
// it is out when only the other one answers. A peer that is busy answers neither. A card that is
// out is tried by pings, too. Used by one thread at a time.
class CardHealth {
 public:
  using Time = CardTimes::Time;

  CardHealth(size_t cards, const CardTimes& times) : times_(times), cards_(cards) {}

  bool works(size_t card) const { return !cards_[card].out; }
  void take_out(size_t card, Time now);
  void take_back(size_t card) { cards_[card].out = false; }
  // Starts to look into a card, unless it does so with another one. The only card that works is
  // pinged, too, but stays.
  void suspect(size_t card, Time now);

  // The number of a ping that is sent now.
  uint32_t ping(size_t card) { return cards_[card].pinged = ++pings_; }
  // Takes an answer. False if it is late: the card may have failed since.
  bool answered(size_t card, uint32_t number);

  // Cards that the caller pings now, and a card that the caller takes out.
  struct Advice {
    std::vector<size_t> ping;
    std::optional<size_t> silent;
  };
  Advice look(Time now);

 private:
  struct Card {
    bool out = false;
    Time retry{};
    std::chrono::milliseconds pause{0};
    uint32_t pinged = 0, answered = 0;  // number of the last ping, and of the last answer
    bool answers() const { return pinged == answered; }
  };
  struct Doubt {
    size_t suspect, witness;
    Time begun;
    bool pinged = false;
    std::optional<Time> answered{};  // by the witness
  };

  const CardTimes times_;
  std::vector<Card> cards_;
  std::optional<Doubt> doubt_;
  size_t next_witness_ = 0;
  uint32_t pings_ = 0;
};

}  // namespace hccl_like

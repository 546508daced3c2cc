#include "transport/tcp/railed_wire.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

namespace hccl_like {
namespace {

constexpr size_t kLongestPeek = 4096;
constexpr size_t kRailPiecesPerCall = 16;

// One rail of several that is silent while others are not is replaced early. A mistake costs a new
// connection.
constexpr std::chrono::milliseconds kSilenceOfOne{500};
constexpr unsigned kAttemptsOfOne = 2;

// Traffic that justifies the other rails, early enough that they are ready at their turn.
constexpr uint64_t worth_rails(const RailOptions& options) { return options.first_bytes / 4; }

}  // namespace

RailedWire::RailedWire(std::unique_ptr<TcpWire> first, const RailOptions& options)
    : Wire("tcp"),
      options_(options),
      rails_(options.rails),
      missing_(options.rails - 1),
      seam_(kLongestPeek) {
  if (options.rails == 0 || options.stripe_bytes < kLongestPeek)
    throw_misuse("a wire has at least one rail, and stripes of at least 4096 bytes");
  attach_rail(0, std::move(first));
}

void RailedWire::attach_rail(size_t index, std::unique_ptr<TcpWire> rail) {
  rails_[index] = std::move(rail);
  if (rails_.size() > 1) rails_[index]->limit_silence(kSilenceOfOne, kAttemptsOfOne);
}

bool RailedWire::wants_rails() const {
  return missing_ > 0 && !ended_ && std::max(written_, read_) >= worth_rails(options_);
}

bool RailedWire::misses(size_t index) const { return index < rails_.size() && !rails_[index]; }

void RailedWire::attach(size_t index, std::unique_ptr<TcpWire> rail) {
  attach_rail(index, std::move(rail));
  --missing_;
}

void RailedWire::give_up(const Error& error) {
  for (const auto& rail : rails_)
    if (rail) rail->give_up(error);
  peek(want_);
}

bool RailedWire::over() const {
  return std::ranges::any_of(rails_, [](const auto& rail) { return rail && rail->ended(); });
}

RailedWire::Place RailedWire::place(uint64_t position) const {
  if (rails_.size() == 1) return {rails_[0].get(), std::numeric_limits<size_t>::max()};
  if (position < options_.first_bytes)
    return {rails_[0].get(), static_cast<size_t>(options_.first_bytes - position)};
  const uint64_t beyond = position - options_.first_bytes;
  // Rail 1 is next after the first rail's share.
  const size_t rail = (beyond / options_.stripe_bytes + 1) % rails_.size();
  return {rails_[rail].get(), options_.stripe_bytes - beyond % options_.stripe_bytes};
}

size_t RailedWire::write(std::span<const ConstRegion> pieces) {
  if (ended_) return 0;
  size_t written = 0;
  size_t begun = 0;  // bytes of pieces[0] already written
  while (!pieces.empty()) {
    const Place at = place(written_);
    if (at.rail == nullptr) break;
    std::array<ConstRegion, kRailPiecesPerCall> part;
    size_t count = 0, asked = 0;
    for (size_t skip = begun; count < std::min(pieces.size(), part.size()) && asked < at.run;
         skip = 0) {
      const ConstRegion& piece = pieces[count];
      const size_t bytes = std::min(piece.bytes - skip, at.run - asked);
      part[count++] = {piece.data + skip, bytes, piece.stays};
      asked += bytes;
    }
    const size_t taken = at.rail->write({part.data(), count});
    written += taken;
    written_ += taken;
    begun += taken;
    while (!pieces.empty() && begun >= pieces[0].bytes) {
      begun -= pieces[0].bytes;
      pieces = pieces.subspan(1);
    }
    if (taken < asked) break;
  }
  return written;
}

std::span<const std::byte> RailedWire::peek(size_t want) {
  want_ = want;
  const Place at = place(read_);
  if (at.rail == nullptr) return {};
  std::span<const std::byte> view = at.rail->peek(std::min(want, at.run));
  view = view.first(std::min(view.size(), at.run));
  if (view.size() >= want) return view;
  if (view.size() == at.run) {
    const Place next = place(read_ + at.run);
    if (next.rail != nullptr) {
      const auto rest = next.rail->peek(want - at.run);
      const size_t both = std::min(want - at.run, rest.size());
      std::memcpy(seam_.data(), view.data(), at.run);
      std::memcpy(seam_.data() + at.run, rest.data(), both);
      view = {seam_.data(), at.run + both};
    }
  }
  if (view.size() < want) look_for_the_end(want);
  return view;
}

void RailedWire::release(size_t bytes) {
  while (bytes > 0) {
    const Place at = place(read_);
    const size_t part = std::min(bytes, at.run);
    at.rail->release(part);
    read_ += part;
    bytes -= part;
  }
}

size_t RailedWire::read(std::span<std::byte> into) {
  want_ = 1;
  size_t got = 0;
  while (got < into.size()) {
    const Place at = place(read_);
    if (at.rail == nullptr) break;
    const size_t asked = std::min(into.size() - got, at.run);
    const size_t part = at.rail->read(into.subspan(got, asked));
    got += part;
    read_ += part;
    if (part < asked) break;
  }
  if (got == 0 && !into.empty()) look_for_the_end(1);
  return got;
}

// Called with fewer than `want` bytes available. The wire ends if the rail of the next byte has
// ended. It also ends if another rail has ended and no more bytes of this rail are on their way: a
// peer that closes in order delivers everything first.
void RailedWire::look_for_the_end(size_t want) {
  if (ended_ || !over()) return;
  Place at = place(read_);
  if (want > at.run && at.rail != nullptr && at.rail->peek(at.run).size() >= at.run) {
    want -= at.run;  // the next rail lacks bytes
    at = place(read_ + at.run);
  }
  want = std::min(want, at.run);
  if (at.rail == nullptr) {
    for (const auto& rail : rails_)
      if (rail && rail->ended() != nullptr) ended_ = *rail->ended();
    return;
  }
  const auto other = std::ranges::find_if(rails_, [&](const auto& rail) {
    return rail && rail.get() != at.rail && rail->ended() != nullptr;
  });
  const bool alone = other == rails_.end();
  if (!alone && (at.rail->broken() || at.rail->resuming())) at.rail->give_up(*(*other)->ended());
  if (!alone && at.rail->failure() == nullptr) {
    const bool quiet = at.rail->peek(want).size() < want && at.rail->prepare_sleep({});
    at.rail->end_sleep();
    if (quiet) ended_ = *(*other)->ended();
  }
  if (const Error* error = at.rail->failure()) ended_ = *error;
}

// The peer writes stripes in order, so bytes of later ones show that the kernel of its host has had
// those of `reading` for as long.
void RailedWire::look_for_the_overdue(TcpWire& reading) {
  const bool others = std::ranges::any_of(rails_, [&](const auto& rail) {
    return rail && rail.get() != &reading && !rail->peek().empty();
  });
  if (!others || overdue_at_ != read_) {
    overdue_ = Deadline::never();
    overdue_at_ = read_;
  }
  if (!others) return;
  if (overdue_.expired()) {
    reading.stop("it has delivered nothing for " + std::to_string(kSilenceOfOne.count()) +
                 " ms, while others have");
    overdue_ = Deadline::never();
  }
  overdue_ = earliest(overdue_, Deadline::after(kSilenceOfOne));
}

bool RailedWire::owes() {
  return std::ranges::any_of(rails_, [](const auto& rail) { return rail && rail->owes(); });
}

// Of several rails, each lets go of all its bytes.
bool RailedWire::let_go(uint64_t accepted, bool copy) {
  if (rails_.size() > 1) accepted = UINT64_MAX;
  return std::ranges::all_of(
      rails_, [&](const auto& rail) { return !rail || rail->let_go(accepted, copy); });
}

bool RailedWire::flush() {
  bool all = true;
  for (const auto& rail : rails_) all = (!rail || rail->flush()) && all;
  return all;
}

// Other rails may hold early bytes. Once buffered, these bytes do not prevent the sleep.
bool RailedWire::prepare_sleep(WakeFor wake) {
  if (ended_) return true;
  if (wake.bytes && peek(want_).size() >= want_) return false;
  TcpWire* const reading = place(read_).rail;
  const TcpWire* const writing = wake.space ? place(written_).rail : nullptr;
  const auto bytes = [&](TcpWire& rail) {
    if (!wake.bytes) return TcpWire::Bytes::kUnread;
    if (&rail == reading) return TcpWire::Bytes::kWanted;
    rail.peek();
    return TcpWire::Bytes::kTakenIn;
  };
  bool asleep = true;
  for (const auto& rail : rails_)
    if (rail) asleep = rail->prepare_sleep(bytes(*rail), rail.get() == writing) && asleep;
  if (asleep && wake.bytes && rails_.size() > 1 && reading != nullptr && reading->replaceable())
    look_for_the_overdue(*reading);
  // No rail wakes for what this peek takes in.
  if (asleep && wake.bytes && over() && peek(want_).size() >= want_) return false;
  return asleep && !ended_;
}

void RailedWire::end_sleep() {
  for (const auto& rail : rails_)
    if (rail) rail->end_sleep();
}

}  // namespace hccl_like

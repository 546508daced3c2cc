#include "collectives/board/board.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "core/machine/fence.h"

namespace hccl_like {
namespace {

// Values of BoardArea::verdict: whether a rank maps all others.
constexpr uint64_t kSeesAll = 1;
constexpr uint64_t kMissesSome = 2;

// In BoardArea::children: no area for the subgroup, or some member is not mapped.
constexpr uint64_t kNone = 1;

// Never 0, so that no stamp equals cleared memory.
uint64_t seal_of(uint64_t communicator) {
  return (communicator ^ communicator >> 32) << 32 | uint64_t{1} << 63;
}

bool is_of(uint64_t stamp, uint64_t seal) { return (stamp & ~uint64_t{UINT32_MAX}) == seal; }

}  // namespace

std::optional<uint32_t> Board::take_area(Commons& commons) {
  const auto taken = commons.areas().take();
  if (!taken) return std::nullopt;
  BoardArea& area = mapped(commons, *taken);
  const uint32_t name = LeasedArea::name(*taken, area.leases++);
  // Readers of the last board may still read the area, so each word is stored atomically. Payloads
  // are never read before they are written.
  area.done.store(name, std::memory_order_relaxed);
  area.verdict.store(0, std::memory_order_relaxed);
  for (CallSlot& line : area.lines) line.stamp.store(0, std::memory_order_relaxed);
  for (auto& child : area.children) child.store(0, std::memory_order_relaxed);
  return name;
}

void Board::give_back_area(Commons& commons, uint32_t name) {
  mapped(commons, name).done.store(BoardArea::kOver, std::memory_order_release);
  commons.areas().give_back(LeasedArea::area(name));
}

BoardArea& Board::mapped(Commons& commons, uint32_t name) {
  return *reinterpret_cast<BoardArea*>(commons.areas().data(LeasedArea::area(name)));
}

Board::Board(std::shared_ptr<Commons> commons, std::optional<uint32_t> area, uint64_t communicator,
             int rank, size_t size)
    : commons_(std::move(commons)),
      area_(area),
      own_(area ? &mapped(*commons_, *area) : nullptr),
      seal_(seal_of(communicator)),
      rank_(rank),
      peers_(size) {
  if (own_ == nullptr) {
    state_ = State::kClosed;
    return;
  }
  peers_[static_cast<size_t>(rank)].area = own_;
  // From now on, readers of the area's last board see that it is over.
  own_->done.store(stamp(UINT32_MAX), std::memory_order_release);
}

const BoardArea* Board::seen(const Link& link, uint32_t name) {
  const PeerCommons* commons = link.commons();
  if (commons == nullptr) return nullptr;
  return reinterpret_cast<const BoardArea*>(commons->area(LeasedArea::area(name)));
}

std::shared_ptr<Board> Board::make(std::shared_ptr<Commons> commons, uint64_t communicator,
                                   int rank, std::span<Link* const> links,
                                   std::span<const std::optional<uint32_t>> areas) {
  const auto own = areas[static_cast<size_t>(rank)];
  if (std::ranges::any_of(areas, [](const auto& area) { return !area; })) return nullptr;
  std::shared_ptr<Board> board(
      new Board(std::move(commons), *own, communicator, rank, links.size()));
  bool sees_all = true;
  for (size_t i = 0; i < links.size(); ++i) {
    if (links[i] == nullptr) continue;
    Peer& peer = board->peers_[i];
    peer.link = links[i];
    peer.area = seen(*links[i], *areas[i]);
    peer.lease = *areas[i];
    sees_all = sees_all && peer.area != nullptr;
  }
  if (!sees_all) board->state_ = State::kClosed;
  board->own().verdict.store(board->seal_ | (sees_all ? kSeesAll : kMissesSome),
                             std::memory_order_release);
  return board;
}

std::shared_ptr<Board> Board::split(const std::shared_ptr<Board>& parent, uint64_t communicator,
                                    std::span<const int> ranks, uint32_t number) {
  if (!parent || number >= BoardArea::kChildren) return nullptr;
  const auto found = std::ranges::find(ranks, parent->rank_);
  const auto link_to = [&](int rank) { return parent->peers_[static_cast<size_t>(rank)].link; };
  const bool sees_all = std::ranges::all_of(ranks, [&](int rank) {
    return link_to(rank) == nullptr || link_to(rank)->commons() != nullptr;
  });
  // Without an area of the parent, this rank cannot publish its area of the subgroup. Members learn
  // that from the parent's own parent.
  const bool tells = parent->own_ != nullptr;
  const auto area = tells && sees_all ? take_area(*parent->commons_) : std::nullopt;
  std::shared_ptr<Board> board(new Board(parent->commons_, area, communicator,
                                         static_cast<int>(found - ranks.begin()), ranks.size()));
  for (size_t i = 0; i < ranks.size(); ++i) board->peers_[i].link = link_to(ranks[i]);
  board->parent_ = parent;
  board->parent_ranks_.assign(ranks.begin(), ranks.end());
  board->number_ = number;
  if (tells) {
    // The other members wait for an answer.
    parent->own().children[number].store(area ? *area : kNone, std::memory_order_release);
    board->ring();
  }
  return board;
}

// All published calls are over. The area is returned once no rank can read its slots, at once if
// there were none. Ranks that read `verdict` or `children` later see that the board is over.
Board::~Board() {
  if (own_ == nullptr) return;
  const uint32_t last = done_ + static_cast<uint32_t>(std::bit_width(done_after_));
  if (last == UINT32_MAX) {
    give_back_area(*commons_, *area_);
  } else {
    own().done.store(BoardArea::kOver, std::memory_order_release);
    commons_->areas().retire(LeasedArea::area(*area_), readers_, last);
  }
}

bool Board::OtherRanks::are_done_with(uint32_t call) const {
  return std::ranges::all_of(ranks_, [&](const Rank& one) {
    return is_done(*one.area, seal_, call) || one.commons->leaving() || one.commons->owner_died();
  });
}

Board::State Board::open() {
  const State state = state_.load(std::memory_order_acquire);
  if (state != State::kOpening) return state;
  const State now = parent_ ? find_peers() : look_at_peers();
  if (now == State::kOpen) {
    std::vector<OtherRanks::Rank> others;
    for (const Peer& peer : peers_)
      if (peer.link != nullptr) others.push_back({peer.area, peer.link->commons()});
    readers_ = std::make_shared<OtherRanks>(std::move(others), seal_);
  }
  if (now != State::kOpening) state_.store(now, std::memory_order_release);
  return now;
}

bool Board::is_over(const Peer& peer) const {
  const BoardArea& area = *peer.area.load(std::memory_order_relaxed);
  const uint64_t done = area.done.load(std::memory_order_acquire);
  return done != peer.lease && !is_of(done, seal_);
}

Board::State Board::look_at_peers() {
  for (const Peer& peer : peers_) {
    const BoardArea& area = *peer.area.load(std::memory_order_relaxed);
    const uint64_t verdict = area.verdict.load(std::memory_order_acquire);
    if (verdict == (seal_ | kSeesAll)) continue;
    if (verdict == (seal_ | kMissesSome)) return State::kClosed;
    // Not published yet, or the rank ended the board without any call on it.
    return is_over(peer) ? State::kClosed : State::kOpening;
  }
  return State::kOpen;
}

Board::State Board::find_peers() {
  for (size_t rank = 0; rank < peers_.size(); ++rank)
    if (const State found = find(rank); found != State::kOpen) return found;
  return State::kOpen;
}

// Finds one rank's area, even if the board does not open. kOpen: `area` is known. kClosed: there is
// none, or this rank does not map it.
Board::State Board::find(size_t rank) {
  Peer& peer = peers_[rank];
  if (peer.area.load(std::memory_order_relaxed) != nullptr) return State::kOpen;
  if (parent_) {
    const auto in_parent = static_cast<size_t>(parent_ranks_[rank]);
    if (const State found = parent_->find(in_parent); found != State::kOpen) return found;
    const Peer& teller = parent_->peers_[in_parent];
    const BoardArea& area = *teller.area.load(std::memory_order_relaxed);
    const uint64_t told = area.children[number_].load(std::memory_order_acquire);
    // The rank may have ended both boards, and another board may use its area. A reader of a word
    // of that board sees here that the parent is over; a reader of a cleared word may see so later.
    if (parent_->is_over(teller)) return State::kClosed;
    if (told == 0) return State::kOpening;
    if (told == kNone) return State::kClosed;
    peer.lease = static_cast<uint32_t>(told);
  }
  const BoardArea* const area = seen(*peer.link, peer.lease);
  peer.area.store(area, std::memory_order_relaxed);
  return area == nullptr ? State::kClosed : State::kOpen;
}

bool Board::is_done(const BoardArea& area, uint64_t seal, uint32_t call) {
  const uint64_t done = area.done.load(std::memory_order_acquire);
  if (!is_of(done, seal)) return true;
  return static_cast<int32_t>(static_cast<uint32_t>(done) - call) >= 0;
}

uint32_t Board::last_done() const {
  return static_cast<uint32_t>(own().done.load(std::memory_order_acquire));
}

bool Board::writable(uint32_t call) {
  const uint32_t block = call / kBlock;
  const uint32_t open = open_block_.load(std::memory_order_acquire);
  constexpr uint32_t kBlocks = UINT32_MAX / kBlock + 1;
  if ((open - block) % kBlocks < kBlocks / 2) return true;
  if (std::ranges::any_of(peers_, [&](const Peer& peer) { return !done_before(peer, block); }))
    return false;
  open_block_.store(block, std::memory_order_release);
  return true;
}

// Whether a rank has finished all calls before the previous block of slots.
bool Board::done_before(const Peer& peer, uint32_t block) const {
  const uint32_t needed = (block - 1) * kBlock - 1;
  const uint32_t told = peer.told_done.load(std::memory_order_acquire);
  // `told` came with a slot that a call just used. Reading the counter itself takes a cache-line
  // transfer and delays its owner's next store.
  return static_cast<int32_t>(told - needed) >= 0 ||
         is_done(*peer.area.load(std::memory_order_relaxed), seal_, needed);
}

std::vector<int> Board::behind(uint32_t call) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank)
    if (!done_before(peers_[static_cast<size_t>(rank)], call / kBlock)) ranks.push_back(rank);
  return ranks;
}

std::byte* Board::payload(uint32_t call, size_t bytes) {
  const size_t at = call % BoardArea::kCallSlots;
  return bytes <= BoardArea::kInlineBytes ? own().lines[at].payload.data()
                                          : own().payloads[at].data();
}

void Board::show(uint32_t call, uint64_t fingerprint, size_t bytes) {
  CallSlot& line = own().lines[call % BoardArea::kCallSlots];
  line.fingerprint = fingerprint;
  line.bytes = bytes;
  line.done = last_done();
  line.stamp.store(stamp(call), std::memory_order_release);
}

void Board::withdraw(uint32_t call) {
  own().lines[call % BoardArea::kCallSlots].stamp.store(0, std::memory_order_release);
}

void Board::ring() {
  full_fence();
  for (const Peer& peer : peers_)
    if (peer.link != nullptr) peer.link->nudge();
}

const Board::CallSlot* Board::call_slot(int rank, uint32_t call) const {
  const CallSlot& line = area(rank).lines[call % BoardArea::kCallSlots];
  return line.stamp.load(std::memory_order_acquire) == stamp(call) ? &line : nullptr;
}

void Board::note_done(int rank, const CallSlot& line) {
  peers_[static_cast<size_t>(rank)].told_done.store(static_cast<uint32_t>(line.done),
                                                    std::memory_order_release);
}

const std::byte* Board::payload(int rank, uint32_t call, size_t bytes) const {
  const size_t at = call % BoardArea::kCallSlots;
  return bytes <= BoardArea::kInlineBytes ? area(rank).lines[at].payload.data()
                                          : area(rank).payloads[at].data();
}

const std::byte* Board::staging_buffer(int rank, uint32_t piece) const {
  const Link* link = peers_[static_cast<size_t>(rank)].link;
  if (piece >= Commons::kStagingBuffers) return nullptr;
  return link == nullptr ? commons_->staging_buffers().data(piece)
                         : link->commons()->staging_buffer(piece);
}

void Board::done(uint32_t call) {
  bool block_done = false;
  {
    // Held for a moment only. Unlocking a mutex would wait until other cores release the line.
    while (counting_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    // A call further ahead has failed unpublished, and its communicator with it. This rank
    // publishes no later call, so no rank waits for this completion.
    if (const uint32_t ahead = call - done_ - 1; ahead < kDoneAhead) done_after_ |= 1u << ahead;
    while ((done_after_ & 1) != 0) {
      done_after_ >>= 1;
      ++done_;
      block_done |= done_ % kBlock == kBlock - 1;
    }
    own().done.store(stamp(done_), std::memory_order_release);
    counting_.store(false, std::memory_order_release);
  }
  // Other ranks wait only for whole blocks.
  if (block_done) ring();
}

}  // namespace hccl_like

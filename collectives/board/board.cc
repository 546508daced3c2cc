#include "collectives/board/board.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "core/fence.h"

namespace hccl_like {
namespace {

// How a rank tells in BoardArea::verdict whether it sees all others.
constexpr uint64_t kSeesAll = 1;
constexpr uint64_t kMissesSome = 2;

constexpr uint64_t kNone = 1;
constexpr uint64_t kFirst = 2;

// Never 0, so that no stamp equals cleared memory.
uint64_t seal_of(uint64_t communicator) {
  return (communicator ^ communicator >> 32) << 32 | uint64_t{1} << 63;
}

bool is_of(uint64_t stamp, uint64_t seal) { return (stamp & ~uint64_t{UINT32_MAX}) == seal; }

}  // namespace

std::optional<uint32_t> Board::take_area(Commons& commons) {
  const auto area = commons.areas().take();
  if (!area) return std::nullopt;
  // Who sees anything of what follows sees that the last board here is over (look_at_parent).
  full_fence();
  // The payloads behind the head are never read before they are written.
  new (commons.areas().data(*area)) BoardArea;
  return area;
}

void Board::give_back_area(Commons& commons, uint32_t area) {
  reinterpret_cast<BoardArea*>(commons.areas().data(area))
      ->done.store(BoardArea::kOver, std::memory_order_release);
  commons.areas().give_back(area);
}

Board::Board(std::shared_ptr<Commons> commons, std::optional<uint32_t> area, uint64_t communicator,
             int rank, size_t size)
    : commons_(std::move(commons)),
      area_(area),
      own_(area ? reinterpret_cast<BoardArea*>(commons_->areas().data(*area)) : nullptr),
      seal_(seal_of(communicator)),
      rank_(rank),
      peers_(size) {
  if (own_ == nullptr) {
    state_ = State::kClosed;
    return;
  }
  peers_[static_cast<size_t>(rank)].area = own_;
  // Of this board from the first moment: whoever was a reader of the area's last one can tell that it is over.
  own_->done.store(stamp(UINT32_MAX), std::memory_order_release);
}

const BoardArea* Board::seen(const Link& link, uint32_t area) {
  const PeerCommons* commons = link.commons();
  return commons == nullptr ? nullptr : reinterpret_cast<const BoardArea*>(commons->area(area));
}

std::shared_ptr<Board> Board::make(std::shared_ptr<Commons> commons, uint64_t communicator,
                                   int rank, std::span<Link* const> links,
                                   std::span<const std::optional<uint32_t>> areas) {
  const auto own = areas[static_cast<size_t>(rank)];
  if (std::ranges::any_of(areas, [](const auto& area) { return !area; })) return nullptr;
  std::shared_ptr<Board> board(
      new Board(std::move(commons), *own, communicator, rank, links.size()));
  for (size_t i = 0; i < links.size(); ++i) {
    if (links[i] == nullptr) continue;
    Peer& peer = board->peers_[i];
    peer.link = links[i];
    peer.area = seen(*links[i], *areas[i]);
    if (peer.area == nullptr) board->sees_all_ = false;
  }
  if (!board->sees_all_) board->state_ = State::kClosed;
  board->own().verdict.store(board->seal_ | (board->sees_all_ ? kSeesAll : kMissesSome),
                             std::memory_order_release);
  return board;
}

std::shared_ptr<Board> Board::split(const std::shared_ptr<Board>& parent, uint64_t communicator,
                                    std::span<const int> ranks, uint32_t number) {
  if (!parent || number >= BoardArea::kChildren) return nullptr;
  const auto found = std::ranges::find(ranks, parent->rank_);
  // Where a board is closed, all parts of it are.
  const bool may_open = parent->state_.load(std::memory_order_acquire) != State::kClosed;
  const auto area = may_open ? take_area(*parent->commons_) : std::nullopt;
  std::shared_ptr<Board> board(new Board(parent->commons_, area, communicator,
                                         static_cast<int>(found - ranks.begin()), ranks.size()));
  for (size_t i = 0; i < ranks.size(); ++i)
    board->peers_[i].link = parent->peers_[static_cast<size_t>(ranks[i])].link;
  board->parent_ = parent;
  board->parent_ranks_.assign(ranks.begin(), ranks.end());
  board->number_ = number;
  if (may_open) {
    // The others count on an answer.
    parent->own().children[number].store(area ? *area + kFirst : kNone, std::memory_order_release);
    parent->ring();
  }
  return board;
}

// All calls that this rank has shown are over. The area goes back when no rank can want to read its lines any more, at once if there were
// none. Ranks that look for its verdict or its parts only then find that the board is over.
Board::~Board() {
  if (own_ == nullptr) return;
  const uint32_t last = done_ + static_cast<uint32_t>(std::bit_width(done_after_));
  if (last == UINT32_MAX) {
    give_back_area(*commons_, *area_);
  } else {
    own().done.store(BoardArea::kOver, std::memory_order_release);
    commons_->areas().retire(*area_, readers_, last);
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
  const State now = parent_ ? look_at_parent() : look_at_peers();
  if (now == State::kOpen) {
    std::vector<OtherRanks::Rank> others;
    for (const Peer& peer : peers_)
      if (peer.link != nullptr) others.push_back({peer.area, peer.link->commons()});
    readers_ = std::make_shared<OtherRanks>(std::move(others), seal_);
  }
  if (now != State::kOpening) state_.store(now, std::memory_order_release);
  return now;
}

Board::State Board::look_at_peers() {
  for (int rank = 0; rank < size(); ++rank) {
    const uint64_t verdict = area(rank).verdict.load(std::memory_order_acquire);
    if (verdict == (seal_ | kSeesAll)) continue;
    if (verdict == (seal_ | kMissesSome)) return State::kClosed;
    // Not told yet, unless the area serves another board by now: then that rank made no call on this one, and makes none.
    const uint64_t done = area(rank).done.load(std::memory_order_acquire);
    return done == 0 || is_of(done, seal_) ? State::kOpening : State::kClosed;
  }
  return State::kOpen;
}

Board::State Board::look_at_parent() {
  const State parent = parent_->open();
  if (parent != State::kOpen) return parent;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].area.load(std::memory_order_relaxed) != nullptr) continue;
    const BoardArea& area = parent_->area(parent_ranks_[i]);
    const uint64_t entry = area.children[number_].load(std::memory_order_acquire);
    // Read too late: that rank has ended both boards.
    acquire_fence();
    if (!is_of(area.done.load(std::memory_order_acquire), parent_->seal_)) return State::kClosed;
    if (entry == 0) return State::kOpening;
    if (entry < kFirst || entry - kFirst >= Commons::kAreas) return State::kClosed;
    peers_[i].area.store(seen(*peers_[i].link, static_cast<uint32_t>(entry - kFirst)),
                         std::memory_order_relaxed);
  }
  return State::kOpen;
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

// Whether a rank is done with what the lines of the block held: all calls up to the block before the last.
bool Board::done_before(const Peer& peer, uint32_t block) const {
  const uint32_t needed = (block - 1) * kBlock - 1;
  const uint32_t told = peer.told_done.load(std::memory_order_acquire);
  // A line is here, as a call has just used it. The count itself comes from another core, and leaves it waiting for it when it counts on.
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
  const size_t at = call % BoardArea::kLines;
  return bytes <= BoardArea::kInlineBytes ? own().lines[at].payload.data()
                                          : own().payloads[at].data();
}

void Board::show(uint32_t call, uint64_t fingerprint, size_t bytes) {
  Line& line = own().lines[call % BoardArea::kLines];
  line.fingerprint = fingerprint;
  line.bytes = bytes;
  line.done = last_done();
  line.stamp.store(stamp(call), std::memory_order_release);
}

void Board::withdraw(uint32_t call) {
  own().lines[call % BoardArea::kLines].stamp.store(0, std::memory_order_release);
}

void Board::ring() {
  full_fence();
  for (const Peer& peer : peers_)
    if (peer.link != nullptr) peer.link->nudge();
}

const Board::Line* Board::line(int rank, uint32_t call) const {
  const Line& line = area(rank).lines[call % BoardArea::kLines];
  return line.stamp.load(std::memory_order_acquire) == stamp(call) ? &line : nullptr;
}

void Board::heed(int rank, const Line& line) {
  peers_[static_cast<size_t>(rank)].told_done.store(static_cast<uint32_t>(line.done),
                                                    std::memory_order_release);
}

const std::byte* Board::payload(int rank, uint32_t call, size_t bytes) const {
  const size_t at = call % BoardArea::kLines;
  return bytes <= BoardArea::kInlineBytes ? area(rank).lines[at].payload.data()
                                          : area(rank).payloads[at].data();
}

const std::byte* Board::lane(int rank, uint32_t piece) const {
  const Link* link = peers_[static_cast<size_t>(rank)].link;
  if (piece >= Commons::kLanes) return nullptr;
  return link == nullptr ? commons_->lanes().data(piece) : link->commons()->lane(piece);
}

void Board::done(uint32_t call) {
  bool block_done = false;
  {
    // For a moment, in which nobody waits for anything. To unlock a mutex would be to wait until other cores have given up the line.
    while (counting_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    done_after_ |= 1u << (call - done_ - 1);
    while ((done_after_ & 1) != 0) {
      done_after_ >>= 1;
      ++done_;
      block_done |= done_ % kBlock == kBlock - 1;
    }
    own().done.store(stamp(done_), std::memory_order_release);
    counting_.store(false, std::memory_order_release);
  }
  // Only then may somebody wait for it.
  if (block_done) ring();
}

}  // namespace hccl_like

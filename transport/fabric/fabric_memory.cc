#include "transport/fabric/fabric_memory.h"

#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

// A read for so long causes pings over its rail and over another one.
constexpr milliseconds kSilentRead{500};
// If only the other one answers, the read ends with the endpoint that much later: a card that
// reports an error by itself keeps the endpoint for the other peers.
constexpr milliseconds kLastChance{500};
// Between two attempts of a read that fails.
constexpr milliseconds kRetry{100};
constexpr unsigned kTurns = 32;  // of progress() for each look at the clock

}  // namespace

// A place holds an address and a key per endpoint of the showing process.
static_assert(2 * FabricMemory::kMostRails <= std::tuple_size_v<decltype(RemotePlace::words)>);

FabricMemory::FabricMemory(std::vector<FabricEnd*> own, std::vector<FabricRail> rails,
                           std::vector<std::unique_ptr<BlockPort>> notes, const std::string& peer,
                           bool mends, bool devices)
    : own_(std::move(own)),
      rails_(std::move(rails)),
      mends_(mends),
      notes_(std::move(notes), kNotes, "fabric", peer),
      devices_(devices) {}

std::optional<RemotePlace> FabricMemory::show(size_t slot, const std::byte* data, size_t bytes) {
  RemotePlace place;
  Uses uses;
  for (size_t i = 0; i < own_.size(); ++i) {
    auto use = own_[i]->registrations().use(data, bytes);
    if (!use) return std::nullopt;
    const auto window = own_[i]->window(*use, data);
    place.words[2 * i] = window.base;
    place.words[2 * i + 1] = window.key;
    uses.push_back(std::move(use));
  }
  shown_[slot] = std::move(uses);
  ++busy_;
  return place;
}

void FabricMemory::hide(size_t slot) {
  shown_[slot].clear();
  --busy_;
}

bool FabricMemory::is_of_device(std::span<const std::byte> memory) const {
  return devices_ && ExportedMemory::find(memory.data(), memory.size()) != nullptr;
}

// Registers with all endpoints: the reading one is not known yet.
bool FabricMemory::prepare(const std::byte* data, size_t bytes) {
  return devices_ && std::ranges::all_of(own_, [&](FabricEnd* end) {
           return end->registrations().use(data, bytes) != nullptr;
         });
}

std::optional<uint32_t> FabricMemory::read(const RemotePlace& place, size_t offset,
                                           std::span<std::byte> into) {
  const auto free = std::ranges::find_if(reads_, [](const Read& one) { return !one.in_use; });
  if (free == reads_.end()) return std::nullopt;
  free->place = place;
  free->offset = offset;
  free->into = into;
  free->tries = 0;
  if (!start(*free)) return std::nullopt;
  free->in_use = true;
  ++busy_;
  return static_cast<uint32_t>(free - reads_.begin());
}

// If there is another one, not the rail on which the read has failed, and not one that is out.
std::optional<size_t> FabricMemory::next_rail(const Read& one) {
  std::optional<size_t> found;
  for (size_t i = 0; i < rails_.size(); ++i) {
    const size_t rail = next_rail_++ % rails_.size();
    if (!rails_[rail].peer->end().is_open()) continue;
    const bool failed = one.tries > 0 && rail == one.rail;
    if (!mends_ || (!failed && notes_.channel().works(rail))) return rail;
    if (!found) found = rail;
  }
  return found;
}

// False if the provider has no room now. A read that cannot start has failed.
bool FabricMemory::start(Read& one) {
  one.waits = false;
  one.registration = nullptr;
  one.operation.done = one.operation.failed = true;
  const auto rail = next_rail(one);
  ++one.tries;
  if (!rail) return true;
  one.rail = *rail;
  FabricEnd& end = end_of(one);
  one.opening = end.opening();
  void* descriptor = nullptr;
  if ((end.info().domain_attr->mr_mode & FI_MR_LOCAL) != 0 || is_of_device(one.into)) {
    one.registration = end.registrations().use(one.into.data(), one.into.size());
    if (!one.registration) return true;
    descriptor = fi_mr_desc(static_cast<fid_mr*>(one.registration->handle));
  }
  const size_t far = 2 * rails_[*rail].far;
  one.operation.done = one.operation.failed = false;
  const ssize_t status = fi_read(end.endpoint(), one.into.data(), one.into.size(), descriptor,
                                 rails_[*rail].peer->handle(), one.place.words[far] + one.offset,
                                 one.place.words[far + 1], &one.operation.context);
  if (mends_) one.begun = Deadline::Clock::now();
  if (status == 0) return true;
  one.operation.done = one.operation.failed = true;
  if (status != -FI_EAGAIN) return true;
  one.registration = nullptr;
  --one.tries;
  return false;
}

bool FabricMemory::is_lost(const Read& one) const {
  if (one.operation.done) return one.operation.failed;
  return !end_of(one).is_open() || end_of(one).opening() != one.opening;
}

RemoteMemory::State FabricMemory::state(uint32_t read) const {
  const Read& one = reads_[read];
  if (one.waits || (is_lost(one) && may_go_on(one))) return State::kUnderWay;
  if (is_lost(one)) return State::kFailed;
  return one.operation.done ? State::kDone : State::kUnderWay;
}

void FabricMemory::release(uint32_t read) {
  reads_[read].in_use = false;
  reads_[read].registration = nullptr;
  --busy_;
}

// The pings of the notes find out whether a rail works: a read fails also for other reasons.
void FabricMemory::look_after(Read& one, Deadline::Clock::time_point now) {
  BlockChannel& notes = notes_.channel();
  if (one.waits || (is_lost(one) && may_go_on(one))) {
    if (!one.waits && one.tries > 1 && now - one.begun < kRetry) return;
    if (!one.waits) notes.suspect(one.rail);
    one.waits = !start(one);
    return;
  }
  if (one.operation.done || now - one.begun < kSilentRead) return;
  notes.suspect(one.rail);
  if (notes.works(one.rail) || now - one.begun < kSilentRead + kLastChance) return;
  for (size_t rail = 0; rail < rails_.size(); ++rail)
    if (notes.works(rail)) return end_of(one).shut("the peer answers no read over it");
}

void FabricMemory::tell(Note note) {
  to_tell_.push_back(note);
  send_notes();
}

// The wire takes a small block whole or not at all.
void FabricMemory::send_notes() {
  while (!to_tell_.empty()) {
    const ConstRegion note{reinterpret_cast<const std::byte*>(&to_tell_.front()), sizeof(Note)};
    if (notes_.write({&note, 1}) == 0) return;
    to_tell_.pop_front();
  }
}

bool FabricMemory::has_notes() {
  if (notes_.holds(sizeof(Note))) return true;
  for (size_t card = 0; card < notes_.channel().cards(); ++card)
    if (notes_.channel().port(card).has_arrivals()) return true;
  return false;
}

bool FabricMemory::flush() {
  send_notes();
  return notes_.flush() && to_tell_.empty();
}

std::optional<RemoteMemory::Note> FabricMemory::hear() {
  if (!has_notes()) return std::nullopt;
  const auto view = notes_.peek(sizeof(Note));
  if (view.size() < sizeof(Note)) return std::nullopt;
  Note note;
  std::memcpy(&note, view.data(), sizeof note);
  notes_.release(sizeof note);
  return note;
}

// The byte wire drives the first two endpoints. Software providers need all of them driven during
// reads.
void FabricMemory::progress() {
  if (!to_tell_.empty()) send_notes();
  if (busy_ == 0) return;
  for (FabricEnd* end : own_) end->progress();
  if (!mends_ || ++turn_ % kTurns != 0) return;
  const auto now = Deadline::Clock::now();
  for (Read& one : reads_)
    if (one.in_use) look_after(one, now);
  notes_.channel().progress();
  notes_.channel().watch();
}

void FabricMemory::abandon(const char* why) {
  for (const Read& one : reads_)
    if (one.in_use && !one.operation.done) end_of(one).shut(why);
  if (abandoned_.empty()) abandoned_ = why;
}

}  // namespace hccl_like

#include "transport/fabric/fabric_memory.h"

#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hccl_like {

// A place holds an address and a key per endpoint of the showing process.
static_assert(2 * FabricMemory::kMostRails <= std::tuple_size_v<decltype(RemotePlace::words)>);

FabricMemory::FabricMemory(std::vector<FabricEnd*> own, std::vector<FabricRail> rails,
                           std::unique_ptr<FabricPort> notes, const std::string& peer, bool devices)
    : own_(std::move(own)),
      rails_(std::move(rails)),
      notes_port_(*notes),
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
  const auto free =
      std::ranges::find_if(reads_, [](const Read& one) { return one.end == nullptr; });
  if (free == reads_.end()) return std::nullopt;
  const FabricRail& rail = rails_[next_rail_++ % rails_.size()];
  FabricEnd& end = rail.peer->end();
  if (!end.shut().empty()) return std::nullopt;
  void* descriptor = nullptr;
  long status = 0;
  if ((end.info().domain_attr->mr_mode & FI_MR_LOCAL) != 0 || is_of_device(into)) {
    free->into = end.registrations().use(into.data(), into.size());
    if (free->into)
      descriptor = fi_mr_desc(static_cast<fid_mr*>(free->into->handle));
    else
      status = -FI_ENOMEM;
  }
  free->operation.done = free->operation.failed = false;
  if (status == 0)
    status = fi_read(end.endpoint(), into.data(), into.size(), descriptor, rail.peer->handle(),
                     place.words[2 * rail.far] + offset, place.words[2 * rail.far + 1],
                     &free->operation.context);
  if (status == -FI_EAGAIN) {
    free->into = nullptr;
    return std::nullopt;
  }
  if (status != 0) free->operation.done = free->operation.failed = true;
  free->end = &end;
  ++busy_;
  return static_cast<uint32_t>(free - reads_.begin());
}

RemoteMemory::State FabricMemory::state(uint32_t read) const {
  const Read& one = reads_[read];
  if (one.operation.done) return one.operation.failed ? State::kFailed : State::kDone;
  return one.end->shut().empty() ? State::kUnderWay : State::kFailed;
}

void FabricMemory::release(uint32_t read) {
  reads_[read].end = nullptr;
  reads_[read].into = nullptr;
  --busy_;
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

bool FabricMemory::has_notes() { return notes_port_.has_arrivals() || notes_.holds(sizeof(Note)); }

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

// The byte wire drives the first endpoint. Software providers need the others driven during reads.
void FabricMemory::progress() {
  if (!to_tell_.empty()) send_notes();
  if (busy_ == 0) return;
  for (FabricEnd* end : own_) end->progress();
}

void FabricMemory::abandon(const char* why) {
  for (FabricEnd* end : own_) end->shut(why);
}

}  // namespace hccl_like

#include "transport/same_host/commons.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "core/machine/fence.h"
#include "core/memory/memory_file.h"
#include "core/memory/placement.h"

namespace hccl_like {
namespace {

Mapping map(int fd, int protection) {
  Mapping mapping = Mapping::map(fd, Commons::kBytes, protection, MAP_SHARED | MAP_NORESERVE);
  // A forked child (a data loader's worker) must neither keep the memory alive nor write to it.
  ::madvise(mapping.data(), mapping.size(), MADV_DONTFORK);
  return mapping;
}

Fd make_sized() {
  Fd memory = make_shared_memory();
  if (::ftruncate(memory.get(), Commons::kBytes) != 0)
    throw_system("cannot size the memory shown to peers on this host");
  return memory;
}

// For the owner: afterwards others can map the descriptor only for reading.
Mapping map_and_seal(int fd) {
  Mapping mapping = map(fd, PROT_READ | PROT_WRITE);
  seal_size_and_writers(fd);
  return mapping;
}

}  // namespace

Commons::Commons(std::string_view owner)
    : memory_(make_sized()),
      mapping_(map_and_seal(memory_.get())),
      areas_(memory_.get(), mapping_.data(), 0, kAreaBytes, kAreaHeadBytes, kAreas),
      staging_buffers_(memory_.get(), mapping_.data() + kStagingBegin, kStagingBegin, kStagingBytes,
                       kStagingBytes, kStagingBuffers) {
  // Must precede the first touch of the memory.
  place_near_me(mapping_.span());
  if (!reserve(memory_.get(), kLifeBegin, sizeof(LifeWord)))
    throw_system("no memory to show to peers on this host");
  life_.emplace(*new (mapping_.data() + kLifeBegin) LifeWord);
  if (!reserve(memory_.get(), kNotesBegin, kBytes - kNotesBegin))
    throw_system("cannot reserve the memory shown to peers on this host");
  notes_ = new (mapping_.data() + kNotesBegin) CommonsNotes;
  owner.copy(notes_->owner, sizeof notes_->owner);
  if (::getrandom(&notes_->identity, sizeof notes_->identity, 0) != sizeof notes_->identity)
    throw_system("no random number for the memory shown to peers on this host");
  exports_.emplace(notes_->exports);
}

void Commons::set_asleep(bool asleep) {
  notes_->asleep.store(asleep ? 1 : 0, std::memory_order_relaxed);
  if (asleep) full_fence();
}

bool Commons::give_up(uint64_t communicator, std::string_view reason) {
  const uint32_t number = notes_->given_up.load(std::memory_order_relaxed);
  if (number > 0 && notes_->communicators[(number - 1) % CommonsNotes::kGivenUp].load(
                        std::memory_order_relaxed) == communicator)
    return false;
  notes_->reasons[number % CommonsNotes::kReasons].write(uint64_t{number} + 1, reason);
  notes_->communicators[number % CommonsNotes::kGivenUp].store(communicator,
                                                               std::memory_order_relaxed);
  notes_->given_up.store(number + 1, std::memory_order_release);
  return true;
}

PeerCommons::PeerCommons(Fd memory) {
  struct stat status {};
  if (!has_sealed_size(memory.get()) || ::fstat(memory.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) != Commons::kBytes)
    throw_error(ErrorCode::kPeerLost, "the peer shows memory of an unexpected kind");
  mapping_ = std::make_shared<const Mapping>(map(memory.get(), PROT_READ));
  base_ = mapping_->data();
}

bool PeerCommons::owner_died() const {
  return reinterpret_cast<const LifeWord*>(base_ + Commons::kLifeBegin)->died();
}

bool PeerCommons::belongs_to(std::string_view owner) const {
  constexpr size_t kBytes = sizeof(CommonsNotes::owner);
  return owner.size() <= kBytes &&
         std::string_view(notes().owner, ::strnlen(notes().owner, kBytes)) == owner;
}

uint64_t PeerCommons::given_up(uint32_t number) const {
  return notes().communicators[number % CommonsNotes::kGivenUp].load(std::memory_order_relaxed);
}

std::string PeerCommons::reason(uint32_t number) const {
  return notes()
      .reasons[number % CommonsNotes::kReasons]
      .read(uint64_t{number} + 1)
      .value_or("it failed there");
}

}  // namespace hccl_like

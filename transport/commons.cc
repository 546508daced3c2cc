#include "transport/commons.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "core/error.h"
#include "core/placement.h"
#include "transport/shm/memory.h"

namespace hccl_like {
namespace {

Mapping map(int fd, int protection) {
  Mapping mapping = Mapping::map(fd, Commons::kBytes, protection, MAP_SHARED | MAP_NORESERVE);
  // A forked child (a data loader's worker) must neither keep the memory alive nor write into it.
  ::madvise(mapping.data(), mapping.size(), MADV_DONTFORK);
  return mapping;
}

Fd make_sealed() {
  Fd memory = make_shared_memory();
  if (::ftruncate(memory.get(), Commons::kBytes) != 0)
    throw_system("cannot size the memory shown to peers on this host");
  seal_size(memory.get());
  return memory;
}

}  // namespace

Commons::Commons()
    : memory_(make_sealed()),
      mapping_(map(memory_.get(), PROT_READ | PROT_WRITE)),
      areas_(memory_.get(), mapping_.data(), 0, kAreaBytes, kAreaHeadBytes, kAreas),
      lanes_(memory_.get(), mapping_.data() + kLanesBegin, kLanesBegin, kLaneBytes, kLaneBytes,
             kLanes) {
  // Before any of it is taken.
  place_near_me(mapping_.span());
  if (!reserve(memory_.get(), kLifeBegin, sizeof(LifeWord)))
    throw_system("no memory to show to peers on this host");
  life_.emplace(*new (mapping_.data() + kLifeBegin) LifeWord);
}

PeerCommons::PeerCommons(Fd memory) {
  struct stat status {};
  if (!has_sealed_size(memory.get()) || ::fstat(memory.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) != Commons::kBytes)
    throw_error(ErrorCode::kPeerLost, "the peer shows memory of an unexpected kind");
  mapping_ = map(memory.get(), PROT_READ);
}

}  // namespace hccl_like

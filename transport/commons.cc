#include "transport/commons.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/error.h"
#include "transport/shm/memory.h"

namespace hccl_like {
namespace {

constexpr size_t kBytes = Commons::kAreaBytes * Commons::kAreas;

Mapping map(int fd, int protection) {
  Mapping mapping = Mapping::map(fd, kBytes, protection, MAP_SHARED | MAP_NORESERVE);
  // A forked child (a data loader's worker) must neither keep the memory alive nor write into it.
  ::madvise(mapping.data(), mapping.size(), MADV_DONTFORK);
  return mapping;
}

}  // namespace

Commons::Commons() : memory_(make_shared_memory()) {
  if (::ftruncate(memory_.get(), kBytes) != 0)
    throw_system("cannot size the memory shown to peers on this host");
  seal_size(memory_.get());
  mapping_ = map(memory_.get(), PROT_READ | PROT_WRITE);
}

std::optional<uint32_t> Commons::take() {
  const std::lock_guard lock(mutex_);
  std::erase_if(retired_, [this](const auto& one) {
    const bool over = one.second();
    if (over) free_.push_back(one.first);
    return over;
  });
  if (!free_.empty()) {
    const uint32_t area = free_.back();
    free_.pop_back();
    return area;
  }
  if (fresh_ == kAreas) return std::nullopt;
  // Reserved now, so that touching it cannot fail later.
  if (!reserve(memory_.get(), size_t{fresh_} * kAreaBytes, kAreaBytes)) return std::nullopt;
  return fresh_++;
}

void Commons::give_back(uint32_t area) {
  const std::lock_guard lock(mutex_);
  free_.push_back(area);
}

void Commons::retire(uint32_t area, std::function<bool()> unread) {
  const std::lock_guard lock(mutex_);
  retired_.emplace_back(area, std::move(unread));
}

PeerCommons::PeerCommons(Fd memory) {
  struct stat status {};
  if (!has_sealed_size(memory.get()) || ::fstat(memory.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) != kBytes)
    throw_error(ErrorCode::kPeerLost, "the peer shows memory of an unexpected kind");
  mapping_ = map(memory.get(), PROT_READ);
}

}  // namespace hccl_like

#include "transport/shm/segment.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/memory/memory_file.h"
#include "core/memory/placement.h"

namespace hccl_like {
namespace {

constexpr size_t kLargestRing = 1 << 30;

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }
size_t index_bytes() { return page_bytes(); }
size_t file_bytes(size_t ring_bytes) { return index_bytes() + 2 * ring_bytes; }

void map_over(std::byte* address, size_t bytes, int fd, size_t offset) {
  if (::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             static_cast<off_t>(offset)) == MAP_FAILED)
    throw_system("cannot map " + std::to_string(bytes) + " bytes of shared memory");
}

}  // namespace

size_t round_ring_bytes(size_t bytes) {
  return std::bit_ceil(std::clamp(bytes, page_bytes(), kLargestRing));
}

ShmSegment ShmSegment::create(size_t ring_bytes) {
  Fd memory = make_shared_memory();
  const size_t bytes = file_bytes(ring_bytes);
  place_near_me(memory.get(), bytes);
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      !reserve(memory.get(), 0, index_bytes()))
    throw_system("cannot make " + std::to_string(bytes) +
                 " bytes of shared memory for a connection on this host (fewer are needed with a "
                 "smaller HCCL_LIKE_SHM_RING_BYTES)");
  seal_size(memory.get());
  return {std::move(memory), ring_bytes};
}

ShmSegment ShmSegment::open(Fd memory, size_t ring_bytes) {
  struct stat status;
  if (ring_bytes != round_ring_bytes(ring_bytes) || !has_sealed_size(memory.get()) ||
      ::fstat(memory.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) != file_bytes(ring_bytes) ||
      static_cast<size_t>(status.st_blocks) * 512 < index_bytes())
    throw_error(ErrorCode::kPeerLost, "the peer offered shared memory of an unexpected kind");
  return {std::move(memory), ring_bytes};
}

ShmSegment::ShmSegment(Fd memory, size_t ring_bytes)
    : memory_(std::move(memory)),
      ring_bytes_(ring_bytes),
      mapping_(std::make_shared<const Mapping>(
          Mapping::map(-1, index_bytes() + 4 * ring_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE))),
      base_(mapping_->data()) {
  map_over(base_, index_bytes(), memory_.get(), 0);
  for (int direction : {0, 1}) {
    const size_t offset = index_bytes() + static_cast<size_t>(direction) * ring_bytes_;
    map_over(data(direction), ring_bytes_, memory_.get(), offset);
    map_over(data(direction) + ring_bytes_, ring_bytes_, memory_.get(), offset);
  }
  // A forked child (a data loader's worker) must neither keep the memory alive nor write to it.
  ::madvise(base_, mapping_->size(), MADV_DONTFORK);
}

RingIndices& ShmSegment::indices(int direction) const {
  return reinterpret_cast<RingIndices*>(base_)[direction];
}

std::span<std::byte> ShmSegment::workspace(int side) const {
  constexpr size_t kUsed = 2 * sizeof(RingIndices);
  const size_t half = (index_bytes() - kUsed) / 2;
  return {base_ + kUsed + static_cast<size_t>(side) * half, half};
}

bool ShmSegment::make(int direction, size_t begin, size_t bytes) const {
  return populate({data(direction) + begin, bytes});
}

std::byte* ShmSegment::data(int direction) const {
  return base_ + index_bytes() + 2 * static_cast<size_t>(direction) * ring_bytes_;
}

}  // namespace hccl_like

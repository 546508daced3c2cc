#include "core/memory/mapping.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {

Mapping Mapping::map(int fd, size_t bytes, int protection, int flags, size_t offset) {
  void* const address = ::mmap(nullptr, bytes, protection, flags, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED)
    throw_system("cannot map " + std::to_string(bytes) + " bytes of memory");
  return Mapping(address, bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() { reset(); }

void Mapping::move_onto(const Mapping& place) {
  void* const moved =
      ::mremap(data_, bytes_, place.bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, place.data_);
  if (moved == MAP_FAILED) throw_system("cannot move " + std::to_string(bytes_) + " mapped bytes");
  data_ = nullptr;
  bytes_ = 0;
}

void Mapping::reset() noexcept {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace hccl_like

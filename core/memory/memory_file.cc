#include "core/memory/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "core/base/error.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace hccl_like {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

Fd make_shared_memory(const char* name) {
  int fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 reject MFD_NOEXEC_SEAL; some later ones require it.
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw_system("cannot create shared memory (memfd)");
  return Fd(fd);
}

void seal_size(int memory) {
  if (::fcntl(memory, F_ADD_SEALS, kSeals) != 0) throw_system("cannot seal shared memory");
}

void seal_size_and_writers(int memory) {
  if (::fcntl(memory, F_ADD_SEALS, kSeals | F_SEAL_FUTURE_WRITE) == 0) return;
  if (errno != EINVAL) throw_system("cannot seal shared memory");
  seal_size(memory);
}

bool has_sealed_size(int memory) {
  const int seals = ::fcntl(memory, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

bool reserve(int memory, size_t offset, size_t bytes) {
  int result;
  do {
    result = ::fallocate(memory, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

bool populate(std::span<std::byte> pages) {
  int result;
  do {
    result = ::madvise(pages.data(), pages.size(), MADV_POPULATE_WRITE);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  return result == 0 || errno == EINVAL;
}

}  // namespace hccl_like

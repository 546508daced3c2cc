#include "memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"
#include "memory/host_memory.h"
#include "memory/strict.h"

namespace torch_sim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Left for everything else on the host: a device that takes the last page gets its own process
// killed.
constexpr size_t kHeadroom = 64 * kMiB;

void give_back_addresses(void* at, size_t bytes) {
  mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

Arena::Arena(const AddressSpace& space, std::byte* at, size_t bytes)
    : at_(at),
      kernel_(static_cast<std::byte*>(space.to_kernel(at))),
      bytes_(bytes),
      process_(getpid()) {
  if (const size_t available = available_host_memory(); bytes + kHeadroom > available)
    throw OutOfMemory("sim: " + std::to_string(bytes / kMiB) +
                      " MiB more device memory do not fit: the host has " +
                      std::to_string(available / kMiB) + " MiB left");
  fd_ = Descriptor(memfd_create("torch_sim", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd() < 0)
    throw OutOfMemory(system_error("sim: cannot create a memory file for device memory"));
  reserve_pages();
  write_trailer();
  map();
}

Arena::Arena(const AddressSpace& space, std::byte* at, size_t bytes, Descriptor file,
             const Nonce& nonce)
    : at_(at),
      kernel_(static_cast<std::byte*>(space.to_kernel(at))),
      bytes_(bytes),
      fd_(std::move(file)),
      nonce_(nonce),
      process_(getpid()),
      is_peers_(true) {
  map();
}

Arena::~Arena() {
  give_back_addresses(at_, bytes_);
  give_back_addresses(kernel_, bytes_);
}

void Arena::reserve_pages() {
  int result = 0;
  do result = posix_fallocate(fd(), 0, static_cast<off_t>(bytes_ + kTrailerBytes));
  while (result == EINTR);
  if (result == 0) return;
  errno = result;
  throw OutOfMemory(system_error("sim: cannot reserve " + std::to_string(bytes_ / kMiB) +
                                 " MiB of device memory"));
}

void Arena::write_trailer() {
  ArenaTrailer trailer{.bytes = bytes_};
  if (getrandom(&trailer.nonce, sizeof trailer.nonce, 0) != sizeof trailer.nonce ||
      pwrite(fd(), &trailer, sizeof trailer, static_cast<off_t>(bytes_)) != sizeof trailer)
    throw OutOfMemory(system_error("sim: cannot mark a memory file"));
  nonce_ = trailer.nonce;
  fcntl(fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

void Arena::map() {
  const int fixed = MAP_SHARED | MAP_FIXED;
  if (mmap(at_, bytes_, PROT_NONE, fixed, fd(), 0) == MAP_FAILED ||
      mmap(kernel_, bytes_, PROT_READ | PROT_WRITE, fixed | MAP_POPULATE, fd(), 0) == MAP_FAILED) {
    const std::string why = system_error("sim: cannot map device memory");
    give_back_addresses(at_, bytes_);
    give_back_addresses(kernel_, bytes_);
    throw OutOfMemory(why);
  }
  if (!protects_memory()) return;
  mprotect(kernel_, bytes_, PROT_NONE);
  reopen_windows(kernel_, bytes_);
}

}  // namespace torch_sim

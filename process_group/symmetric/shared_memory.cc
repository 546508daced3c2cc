#include "process_group/symmetric/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "core/error.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace hccl_like {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uint64_t kMagic = 0x79726f6d656d7973;

// Behind the data, in a page that is never mapped.
struct Stamp {
  uint64_t magic = kMagic;
  uint64_t bytes = 0;
  std::array<uint64_t, 2> nonce{};
};

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }
size_t whole_pages(size_t bytes) {
  const size_t page = page_bytes();
  return std::max((bytes + page - 1) / page, size_t{1}) * page;
}

Fd make_file() {
  constexpr const char* kName = "hccl-like-symmetric";
  int fd = ::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 do not know MFD_NOEXEC_SEAL, some later ones insist on it.
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw_system("cannot create shared memory (memfd)");
  return Fd(fd);
}

// Looks before it opens: the number in an old token may by now be anything, and opening a device has effects.
Fd open_file(const SharedMemoryToken& token) {
  const std::string process = std::to_string(token.process);
  const std::string path = "/proc/" + process + "/fd/" + std::to_string(token.descriptor);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw_system("cannot look at the shared memory of process " + process +
                 " (both processes must be of one user and see each other in /proc)");
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    throw_error(ErrorCode::kPeerLost,
                "what process " + process + " offered is not shared memory of this user");
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_system("cannot open the shared memory of process " + process);
  return Fd(fd);
}

bool is_what_was_offered(int fd, const SharedMemoryToken& token) {
  struct stat status {};
  Stamp stamp{.magic = 0};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals && ::fstat(fd, &status) == 0 &&
         static_cast<uint64_t>(status.st_size) == token.bytes + page_bytes() &&
         ::pread(fd, &stamp, sizeof stamp, static_cast<off_t>(token.bytes)) == sizeof stamp &&
         stamp.magic == kMagic && stamp.bytes == token.bytes && stamp.nonce == token.nonce;
}

}  // namespace

SharedMemory SharedMemory::create(size_t bytes) {
  Fd file = make_file();
  SharedMemoryToken token{
      .process = ::getpid(), .descriptor = file.get(), .bytes = whole_pages(bytes)};
  int result;
  do {
    result = ::posix_fallocate(file.get(), 0, static_cast<off_t>(token.bytes + page_bytes()));
  } while (result == EINTR);
  if (result != 0) {
    errno = result;
    throw_system("cannot reserve " + std::to_string(token.bytes) + " bytes of shared memory");
  }
  const ssize_t drawn = ::getrandom(&token.nonce, sizeof token.nonce, 0);
  const Stamp stamp{.bytes = token.bytes, .nonce = token.nonce};
  if (drawn != sizeof token.nonce ||
      ::pwrite(file.get(), &stamp, sizeof stamp, static_cast<off_t>(token.bytes)) != sizeof stamp ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    throw_system("cannot seal shared memory");
  return {std::move(file), token};
}

SharedMemory SharedMemory::open(const SharedMemoryToken& token) {
  Fd file = open_file(token);
  if (!is_what_was_offered(file.get(), token))
    throw_error(ErrorCode::kPeerLost, "what process " + std::to_string(token.process) +
                                          " offered is not the shared memory it speaks of");
  SharedMemory memory{std::move(file), token};
  memory.file_.reset();  // the mapping is all that is needed
  return memory;
}

SharedMemory::SharedMemory(Fd file, const SharedMemoryToken& token)
    : file_(std::move(file)),
      token_(token),
      mapping_(Mapping::map(file_.get(), token.bytes, PROT_READ | PROT_WRITE, MAP_SHARED)) {}

}  // namespace hccl_like

#include "plugin/ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"

namespace torch_sim {
namespace {

// Looks before it opens: the number in a stale token may by now be anything, and merely opening a
// device has effects.
Descriptor open_descriptor_of(const ArenaToken& token) {
  const std::string path =
      "/proc/" + std::to_string(token.process) + "/fd/" + std::to_string(token.descriptor);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    throw PeerUnreachable(
        system_error("sim: cannot look at the memory of process " + std::to_string(token.process) +
                     " (both processes must be of one user and see each other in /proc)"));
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
    throw std::invalid_argument("sim: the handle does not name device memory of this user");
  Descriptor fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0)
    throw PeerUnreachable(
        system_error("sim: cannot open the memory of process " + std::to_string(token.process)));
  return fd;
}

void check(int fd, const ArenaToken& token) {
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat status {};
  ArenaTrailer trailer{.magic = 0};
  const bool right =
      seals >= 0 && (seals & kNeeded) == kNeeded && fstat(fd, &status) == 0 &&
      static_cast<uint64_t>(status.st_size) == token.bytes + kTrailerBytes &&
      pread(fd, &trailer, sizeof trailer, static_cast<off_t>(token.bytes)) == sizeof trailer &&
      trailer.magic == ArenaTrailer::kMagic && trailer.bytes == token.bytes &&
      trailer.nonce == token.nonce;
  if (!right)
    throw std::invalid_argument("sim: what the handle names is not the memory it was made for");
}

}  // namespace

ArenaToken export_arena(const Arena& arena) {
  return {.process = arena.process(),
          .descriptor = arena.fd(),
          .bytes = arena.bytes(),
          .nonce = arena.nonce()};
}

Descriptor open_arena_file(const ArenaToken& token) {
  if (token.magic != ArenaTrailer::kMagic)
    throw std::invalid_argument("sim: this handle was not made by a sim device");
  Descriptor fd = open_descriptor_of(token);
  check(fd.get(), token);
  return fd;
}

Mapping open_arena(const ArenaToken& token) {
  const Descriptor fd = open_arena_file(token);
  // The pages are there; one by one, at the first touch, they would take several times as long.
  constexpr int kFlags = MAP_SHARED | MAP_POPULATE;
  void* at = mmap(nullptr, token.bytes, PROT_READ | PROT_WRITE, kFlags, fd.get(), 0);
  if (at == MAP_FAILED) throw OutOfMemory(system_error("sim: cannot map a peer's memory"));
  return {at, token.bytes};
}

void close_arena(Mapping mapping) { munmap(mapping.at, mapping.bytes); }

}  // namespace torch_sim

#include "device/host/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/base/error.h"
#include "device/host/peer_file.h"

namespace hccl_like {
namespace {

// Another thread may close the descriptor meanwhile; the caller detects that. Not fstat():
// ThreadSanitizer treats it as a use of an open descriptor.
std::optional<SharedFileToken> describe(int64_t process, int64_t descriptor, int fd) {
  struct stat status {};
  if (::fstatat(fd, "", &status, AT_EMPTY_PATH) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size <= 0)
    return std::nullopt;
  return SharedFileToken{.process = process,
                         .descriptor = descriptor,
                         .device = status.st_dev,
                         .inode = status.st_ino,
                         .bytes = static_cast<uint64_t>(status.st_size)};
}

}  // namespace

std::optional<SharedFileToken> SharedFileToken::of(int descriptor) {
  return describe(::getpid(), descriptor, descriptor);
}

bool SharedFileToken::is_open() const {
  if (process != ::getpid()) return false;
  const auto found = of(static_cast<int>(descriptor));
  return found && found->device == device && found->inode == inode;
}

Mapping open_shared_file(const SharedFileToken& token) {
  const Fd file = open_peer_file(token.process, token.descriptor);
  const auto found = describe(token.process, token.descriptor, file.get());
  if (!found || found->device != token.device || found->inode != token.inode ||
      found->bytes < token.bytes)
    throw_error(ErrorCode::kPeerLost, "what process " + std::to_string(token.process) +
                                          " offered is not the shared file it speaks of");
  return Mapping::map(file.get(), token.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
}

}  // namespace hccl_like

#include "device/host/peer_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/base/error.h"

namespace hccl_like {

Fd open_peer_file(int64_t process, int64_t descriptor) {
  const std::string owner = std::to_string(process);
  const std::string path = "/proc/" + owner + "/fd/" + std::to_string(descriptor);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw_system("cannot look at the shared memory of process " + owner +
                 " (both processes must be of one user and see each other in /proc)");
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    throw_error(ErrorCode::kPeerLost,
                "what process " + owner + " offered is not shared memory of this user");
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_system("cannot open the shared memory of process " + owner);
  return Fd(fd);
}

}  // namespace hccl_like

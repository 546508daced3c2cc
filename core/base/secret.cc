#include "core/base/secret.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace hccl_like {
namespace {

constexpr std::string_view kAdvice = "; make one with: openssl rand -hex 32";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw_misuse("HCCL_LIKE_SECRET_FILE=" + path + " cannot be used: " + why);
}

void check_owner(const std::string& path, int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) refuse(path, errno_text(errno));
  if (!S_ISREG(status.st_mode)) refuse(path, "it is no regular file");
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    refuse(path, "it belongs to user " + std::to_string(status.st_uid) +
                     ", who could change it; it must be this user's own");
  if ((status.st_mode & 077) != 0)
    refuse(path, "others than its owner may read or write it; run: chmod 600 " + path);
}

}  // namespace

Secret::~Secret() { wipe(); }

Secret& Secret::operator=(const Secret& other) {
  if (this == &other) return *this;
  wipe();
  text_ = other.text_;
  return *this;
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  wipe();
  text_ = std::move(other.text_);
  return *this;
}

void Secret::wipe() noexcept {
  ::explicit_bzero(text_.data(), text_.size());
  text_.clear();
}

Secret Secret::parse(std::string_view text) {
  Secret secret;
  if (text.empty()) return secret;
  if (text.size() < kLeastBytes || text.size() > kMostBytes)
    throw_misuse("a secret has at least 32 and at most 4096 characters, and this one has " +
                 std::to_string(text.size()) + std::string(kAdvice));
  secret.text_ = text;
  return secret;
}

Secret Secret::read_file(const std::string& path) {
  // O_NONBLOCK: a pipe without a writer must not block this process.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.valid()) refuse(path, errno_text(errno));
  check_owner(path, file.get());
  Secret raw;
  raw.text_.resize(kMostBytes + 2);  // room for a line end
  size_t bytes = 0;
  while (bytes < raw.text_.size()) {
    const ssize_t got = ::read(file.get(), raw.text_.data() + bytes, raw.text_.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, errno_text(errno));
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  while (bytes > 0 && std::string_view(" \t\r\n").find(raw.text_[bytes - 1]) != std::string::npos)
    --bytes;
  if (bytes == 0) refuse(path, "it is empty" + std::string(kAdvice));
  try {
    return parse(std::string_view(raw.text_).substr(0, bytes));
  } catch (const Exception& exception) {
    refuse(path, exception.error().message);
  }
}

}  // namespace hccl_like

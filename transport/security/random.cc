#include "transport/security/random.h"

#include <sys/random.h>

#include <cerrno>
#include <vector>

#include "core/base/error.h"

namespace hccl_like {
namespace {

void fill_random(void* into, size_t bytes) {
  auto* at = static_cast<uint8_t*>(into);
  while (bytes > 0) {
    const ssize_t got = ::getrandom(at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw_system("cannot draw random bytes");
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}

}  // namespace

std::string random_hex(size_t bytes) {
  std::vector<uint8_t> raw(bytes);
  fill_random(raw.data(), raw.size());
  std::string text;
  for (const uint8_t byte : raw) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string random_bytes(size_t bytes) {
  std::string text(bytes, '\0');
  fill_random(text.data(), text.size());
  return text;
}

uint64_t random_u64() {
  uint64_t value = 0;
  while (value == 0) fill_random(&value, sizeof value);
  return value;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace hccl_like

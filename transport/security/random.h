#pragma once
// Secure random numbers of the operating system, and comparison in constant time.
#include <cstdint>
#include <string>
#include <string_view>

namespace hccl_like {

// `bytes` random bytes as 2 * `bytes` hexadecimal digits. Throws kSystem.
std::string random_hex(size_t bytes);
std::string random_bytes(size_t bytes);
// Never 0.
uint64_t random_u64();
// The duration does not depend on the position of the first difference.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace hccl_like

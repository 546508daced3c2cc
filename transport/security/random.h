#pragma once
// Randomness of the operating system, for what nobody may guess, and the comparison that goes with
// it.
#include <cstdint>
#include <string>
#include <string_view>

namespace hccl_like {

// `bytes` random bytes as twice as many hexadecimal digits. Throws kSystem.
std::string random_hex(size_t bytes);
std::string random_bytes(size_t bytes);
// Never 0.
uint64_t random_u64();
// Takes the same time wherever the two differ, so that an answer's delay tells nothing.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace hccl_like

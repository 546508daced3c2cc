// How many of something a test program makes, from its environment.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace hccl_like {

// The number in the variable of that name, or the other if it is not set.
inline uint64_t number_setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace hccl_like

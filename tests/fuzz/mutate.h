#pragma once
// Inputs made of other inputs, as fuzzers that know nothing of the code do it.
#include "tests/fuzz/targets.h"

namespace hccl_like::fuzz {

// The number-th input: the same each time.
Bytes mutate(std::span<const Bytes> corpus, std::span<const std::string_view> words,
             uint64_t number);

}  // namespace hccl_like::fuzz

#pragma once
// One function for each parser of bytes that come from outside of the process.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hccl_like::fuzz {

using Bytes = std::vector<uint8_t>;
using Input = std::span<const uint8_t>;

struct Target {
  std::string_view name;
  // Must return, or throw an Exception with a sentence, whatever the bytes; aborts if what was read
  // makes no sense.
  void (*run)(Input input);
  // Valid inputs, besides those of corpus/<name>.
  std::vector<Bytes> (*seeds)();
  std::vector<std::string_view> words;  // that mutations like to insert
};

std::span<const Target> targets();

// Ends the program unless it holds.
void require(bool holds, const char* what);

}  // namespace hccl_like::fuzz

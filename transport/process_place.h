#pragma once
// Where memory lies in its process: what an end of a message tells whose memory nobody can map, but the kernel may read
// (core/process_memory.h).
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "device/device.h"

namespace hccl_like {

// In the place of a handle. No device's handle begins with these words.
inline constexpr std::array<uint64_t, 2> kProcessPlace{0x9b1c4fd2e07a35c6, 0x51d8a3370cbe94f1};

inline ExportedRange process_place(uint64_t address) {
  ExportedRange range;
  std::memcpy(range.handle.bytes, kProcessPlace.data(), sizeof kProcessPlace);
  range.offset = address;
  return range;
}

// The address, if it is such a place.
inline std::optional<uint64_t> address_in_process(const ExportedRange& range) {
  if (std::memcmp(range.handle.bytes, kProcessPlace.data(), sizeof kProcessPlace) != 0)
    return std::nullopt;
  return range.offset;
}

}  // namespace hccl_like

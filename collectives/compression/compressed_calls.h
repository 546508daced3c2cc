#pragma once
// Which calls are compressed, and by which algorithms.
#include <cstddef>
#include <string_view>

#include "collectives/call/call.h"
#include "collectives/topology/hosts.h"
#include "core/settings/config_values.h"

namespace hccl_like {

// Bytes for each rank of the fullest host: the ranks of a host share the bytes that leave it, and
// the time of smaller messages is their latency.
inline constexpr size_t kLeastCompressed = 64 << 10;
// The least payload of a compressed call.
inline size_t least_compressed(const Hosts& hosts) {
  return kLeastCompressed * static_cast<size_t>(hosts.most());
}

// Whether messages of the call between hosts are compressed in a group that asks for it.
// `bytes`: the payload as far as all ranks know it. The same on all ranks.
bool is_compressed(const Call& call, size_t bytes, const Hosts& hosts);

// The algorithm of such calls; `forced` is the user's choice, or empty. A sum is encoded once on
// its way to the rank that adds, and the result once on its way back: the error does not grow with
// the number of hosts. Empty: any algorithm, because it only passes on what was encoded once.
// Throws kMisuse if a sum has another forced algorithm.
std::string_view compressed_algorithm(Collective collective, const Hosts& hosts,
                                      std::string_view forced);

}  // namespace hccl_like

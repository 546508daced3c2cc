#include "collectives/compression/compressed_calls.h"

#include <string>

#include "core/base/error.h"

namespace hccl_like {

bool is_compressed(const Call& call, size_t bytes, const Hosts& hosts) {
  if (hosts.count() == 1 || call.type != DataType::kFloat32 || bytes < least_compressed(hosts))
    return false;
  switch (call.collective) {
    case Collective::kAllGather:
      return !call.precedes;
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      return call.op == ReduceOp::kSum || call.op == ReduceOp::kAvg ||
             call.op == ReduceOp::kPreMulSum;
    default:
      return false;
  }
}

std::string_view compressed_algorithm(Collective collective, const Hosts& hosts,
                                      std::string_view forced) {
  if (!reduces(collective)) return forced;
  const std::string_view only = hosts.nested() ? "rails_direct" : "direct";
  if (!forced.empty() && forced != only)
    throw_misuse("a compressed " + std::string(name(collective)) + " is made by " +
                 std::string(only) + ", not by " + std::string(forced) +
                 "; leave out the algorithm, or the compression");
  return only;
}

}  // namespace hccl_like

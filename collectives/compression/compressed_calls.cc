#include "collectives/compression/compressed_calls.h"

namespace hccl_like {

bool is_compressed(const Call& call, size_t bytes, const Hosts& hosts) {
  if (hosts.count() == 1 || call.type != DataType::kFloat32 || bytes < kLeastCompressed)
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

std::string_view compressed_algorithm(Collective collective, const Hosts& hosts) {
  if (!reduces(collective)) return {};
  return hosts.nested() ? "rails_direct" : "direct";
}

}  // namespace hccl_like

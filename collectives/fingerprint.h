#pragma once
// The call check: 64 bits that say what a rank calls, sent with every message and compared before a buffer is touched.
#include <cstdint>
#include <string>

#include "collectives/algorithms.h"
#include "core/types.h"

namespace hccl_like {

// All ranks of a call have these in common. `detail` stands for what only needs to be equal, not to be read: sizes,
// factor, algorithm, laps.
struct Fingerprint {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  bool reduces = false;
  int root = -1;  // -1: none
  uint64_t detail = 0;

  uint64_t encode() const;
};

// "allreduce of float32 (sum)", "broadcast of int64 from rank 3".
std::string describe_fingerprint(uint64_t encoded);

// A good 64-bit mixture of two values.
uint64_t mix(uint64_t a, uint64_t b);

}  // namespace hccl_like

#pragma once
// What one call wants, as a value: tensors and how they make chunks. calls_*.cc fill it in,
// buffers.cc finds the memory. The lists of tensors are borrowed: nothing is copied or counted on
// the way from torch to the engine.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/engine/operation.h"

namespace hccl_like {

// How the tensors of one side make chunks.
enum class Arrangement : uint8_t {
  kNone,     // no memory
  kWhole,    // one payload: all tensors, one after the other
  kOwn,      // only this rank's chunk: all tensors, one after the other
  kPerRank,  // chunk i is tensor i
  kCut,  // every tensor in one equal part for each rank; chunk i is the i-th parts, one after the
         // other
  kSplits,  // one tensor; chunk i is the next splits[i] rows of it
};

struct Side {
  at::TensorList tensors;
  Arrangement arrangement = Arrangement::kNone;
  std::vector<int64_t> splits;  // kSplits: rows of the first dimension
};

struct Request {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;
  int root = 0;
  uint32_t tag = 0;
  bool uneven = false;
  uint32_t site = 0;  // given by Diagnosis, as is the next; see Call
  uint64_t number = 0;
  Side input;
  Side output;
};

inline bool is_message(const Request& request) {
  return request.collective == Collective::kSend || request.collective == Collective::kRecv;
}

}  // namespace hccl_like

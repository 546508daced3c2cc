#pragma once
// A call as a value: borrowed tensor lists and their division into chunks. calls_*.cc fill it in;
// buffers.cc resolves the memory.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/engine/operation.h"

namespace hccl_like {

// Division of one side's tensors into chunks.
enum class Arrangement : uint8_t {
  kNone,     // no memory
  kWhole,    // one chunk: all tensors, concatenated
  kOwn,      // only this rank's chunk: all tensors, concatenated
  kPerRank,  // chunk i is tensor i; of k tensors for each rank, chunk i is the i-th k of them
  kCut,      // every tensor in equal parts; chunk i is the i-th part of every tensor
  kSplits,   // one tensor; chunk i is the next splits[i] rows of it
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
  uint32_t site = 0;  // Diagnosis sets this field and the next; see Call
  uint64_t number = 0;
  Side input;
  Side output;
};

inline bool is_message(const Request& request) {
  return request.collective == Collective::kSend || request.collective == Collective::kRecv;
}

}  // namespace hccl_like

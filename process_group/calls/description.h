#pragma once
// Names of a call for profilers and error messages.
#include <string>

#include <ATen/core/TensorBody.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace hccl_like {

// Description of a Work's call. Borrows the lists.
struct Description {
  const char* title = "";  // "hccl-like:all_reduce", a literal
  c10d::OpType type = c10d::OpType::UNKNOWN;
  at::TensorList inputs;   // for profilers
  at::TensorList outputs;  // result(), and the value of the Future
};
// "hccl-like all_reduce", for errors.
std::string place_of(const char* title);

}  // namespace hccl_like

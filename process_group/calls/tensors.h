#pragma once
// Argument checks. Every error says what to do.
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "core/base/types.h"

namespace hccl_like {

using Tensors = std::vector<at::Tensor>;

// All checks throw an Exception of kMisuse or kUnsupported.

// The only tensor of a single-tensor call.
const at::Tensor& only(at::TensorList tensors);
// Checks for strided tensors on one device (host or accelerator) and outputs that do not overlap
// themselves. Returns the device with its index; a device without one means the current device.
c10::Device check_tensors(at::TensorList inputs, at::TensorList outputs);
void check_same_type(const at::Tensor& one, const at::Tensor& other);
// "output has 6 elements, 8 are needed: 4 for each of the 2 ranks".
void check_elements(const at::Tensor& tensor, const char* what, int64_t elements,
                    c10::function_ref<std::string()> because);
void check_count(size_t count, size_t expected, const char* what);

// True if memory order is logical order.
bool is_plain(const at::Tensor& tensor);

// "float32[2, 3]".
std::string describe(const at::Tensor& tensor);
// Wire type of tensors that are not reduced: their common type if DataType has it, else bytes.
DataType carrier_type(at::TensorList tensors);

}  // namespace hccl_like

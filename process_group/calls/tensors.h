#pragma once
// Checks of what users pass, each with a sentence that says what to do.
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "core/base/types.h"

namespace hccl_like {

using Tensors = std::vector<at::Tensor>;

// All of these throw an Exception of kMisuse (or kUnsupported).

// The one tensor of a call that takes one.
const at::Tensor& only(at::TensorList tensors);
// Strided tensors, all on the same device, which is the host or the accelerator. Outputs also must
// not overlap themselves. Returns the device, with its index: a tensor whose device has none is on
// the current device.
c10::Device check_tensors(at::TensorList inputs, at::TensorList outputs);
void check_same_type(const at::Tensor& one, const at::Tensor& other);
// "output has 6 elements, 8 are needed: 4 for each of the 2 ranks".
void check_elements(const at::Tensor& tensor, const char* what, int64_t elements,
                    c10::function_ref<std::string()> because);
void check_count(size_t count, size_t expected, const char* what);

// "float32[2, 3]".
std::string describe(const at::Tensor& tensor);
// The type under which these tensors travel when nothing is computed: their own if they agree and
// we know it, else bytes.
DataType carrier_type(at::TensorList tensors);

}  // namespace hccl_like

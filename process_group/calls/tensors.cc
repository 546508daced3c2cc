#include "process_group/calls/tensors.h"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include "core/base/error.h"
#include "process_group/calls/data_type.h"
#include "process_group/device/devices.h"

namespace hccl_like {
namespace {

void check_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) throw_misuse("a tensor is None; pass a tensor on every rank");
  if (tensor.layout() != c10::kStrided) {
    throw_error(
        ErrorCode::kUnsupported,
        "this call takes no sparse tensors (all_reduce takes one in COO format); send their "
        "indices() and values(), or use tensor.to_dense()");
  }
  if (!tensor.is_cpu() && !tensor.is_privateuseone() &&
      tensor.device().type() != accelerator_type()) {
    throw_misuse("tensors on " + tensor.device().str() +
                 " are not served; move them to the CPU or to the accelerator that this backend is "
                 "registered for");
  }
}

}  // namespace

const at::Tensor& only(at::TensorList tensors) {
  if (tensors.size() != 1) {
    throw_misuse(
        "one tensor is needed, got " + std::to_string(tensors.size()) +
        "; one process drives one device, and several tensors go into the *_coalesced call");
  }
  return tensors.front();
}

c10::Device check_tensors(at::TensorList inputs, at::TensorList outputs) {
  std::optional<c10::Device> device;
  for (const at::TensorList side : {inputs, outputs}) {
    for (const at::Tensor& tensor : side) {
      check_tensor(tensor);
      const c10::Device its_device = with_index(tensor.device());
      if (its_device != device.value_or(its_device)) {
        throw_misuse("all tensors of a call must be on one device, got " + device->str() + " and " +
                     its_device.str() + "; move them with tensor.to()");
      }
      device = its_device;
    }
  }
  if (!device) throw_misuse("no tensors were passed; pass at least one");
  for (const at::Tensor& tensor : outputs) {
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
      throw_misuse("the output " + describe(tensor) +
                   " overlaps itself (it was made by expand(), say); pass tensor.contiguous() or a "
                   "new tensor");
    }
  }
  return *device;
}

void check_same_type(const at::Tensor& one, const at::Tensor& other) {
  if (one.scalar_type() == other.scalar_type()) return;
  throw_error(ErrorCode::kUnsupported, "all tensors must have the same dtype, got " +
                                           describe(one) + " and " + describe(other) +
                                           "; convert one with tensor.to()");
}

void check_elements(const at::Tensor& tensor, const char* what, int64_t elements,
                    c10::function_ref<std::string()> because) {
  if (tensor.numel() == elements) return;
  throw_misuse(std::string(what) + " " + describe(tensor) + " has " +
               std::to_string(tensor.numel()) + " elements, " + std::to_string(elements) +
               " are needed: " + because());
}

void check_count(size_t count, size_t expected, const char* what) {
  if (count == expected) return;
  throw_misuse(std::to_string(expected) + " " + what + " are needed, got " + std::to_string(count));
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

std::string describe(const at::Tensor& tensor) {
  const auto type = data_type(tensor.scalar_type());
  std::string text = type ? std::string(name(*type)) : c10::toString(tensor.scalar_type());
  text += '[';
  for (int64_t i = 0; i < tensor.dim(); ++i)
    text += (i ? ", " : "") + std::to_string(tensor.size(i));
  return text + ']';
}

DataType carrier_type(at::TensorList tensors) {
  if (tensors.empty()) return DataType::kUInt8;
  const auto type = tensors.front().scalar_type();
  const bool agree =
      std::ranges::all_of(tensors, [&](const at::Tensor& t) { return t.scalar_type() == type; });
  return agree ? data_type(type).value_or(DataType::kUInt8) : DataType::kUInt8;
}

}  // namespace hccl_like

// Copies, fills: the work that streams do by themselves while the host goes on.
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <cstring>

#include "aten/fallback.h"
#include "aten/lending.h"
#include "base/flaws.h"
#include "glue/convert.h"
#include "glue/host_allocator.h"
#include "memory/strict.h"
#include "runtime/block_copies.h"
#include "runtime/event.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

void submit(Stream& stream, size_t bytes, Stream::Work work) {
  // Tensors made in this mode may be written in it only, by the stream's thread too.
  if (c10::InferenceMode::is_enabled()) {
    work = [work = std::move(work)]() mutable {
      const c10::InferenceMode as_the_caller;
      work();
    };
  }
  if (bytes <= short_work())
    stream.enqueue_or_run(work);
  else
    stream.enqueue(std::move(work));
}

at::Tensor as_host(const at::Tensor& tensor) { return host_view(tensor, host_storage(tensor)); }

Window window_of(const at::Tensor& tensor) {
  return {tensor.storage().data(), tensor.storage().nbytes()};
}

// Both are host tensors of one shape.
void copy_values(int device, const at::Tensor& to, const at::Tensor& from) {
  WorkTime time(device);
  time.copy(to.storage().data(), from.storage().data(), to.nbytes());
  const Window writes = window_of(to), reads = window_of(from);
  const bool same_layout = to.dtype() == from.dtype() && to.strides() == from.strides() &&
                           to.is_non_overlapping_and_dense() && to.is_conj() == from.is_conj() &&
                           to.is_neg() == from.is_neg();
  if (same_layout)
    std::memmove(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
  else
    to.copy_(from);
}

// In the order of the source's stream, which first waits for the destination's, and which that one
// waits for after.
void copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  Stream& stream = current_stream(index_of(from.device()));
  Stream& other = current_stream(index_of(to.device()));
  make_wait(stream, record_on(other));
  submit(stream, to.nbytes(), [device = stream.device(), from = as_host(from), to = as_host(to)] {
    copy_values(device, to, from);
  });
  make_wait(other, record_on(stream));
}

at::Tensor part_of(const at::Tensor& tensor) {
  const at::Tensor part = as_host(tensor);
  const bool misses =
      tensor.storage_offset() > 0 && has(Flaw::kNoOffsets) && tensor.is_privateuseone();
  return misses ? part.as_strided(part.sizes(), part.strides(), 0) : part;
}

// `ours` is the one of the two that is memory of the device.
void copy_part(int device, const at::Tensor& to, const at::Tensor& from, const at::Tensor& ours) {
  if (ours.nbytes() < ours.storage().nbytes())
    touch_block(device, ours.storage().data(), ours.storage().nbytes());
  copy_values(device, to, from);
}

// Between host and device. The caller goes on only if the host's memory is pinned: then the
// allocator keeps it from being reused before the stream has passed.
void copy_with_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::Tensor& ours = from.is_privateuseone() ? from : to;
  const at::Tensor& theirs = from.is_privateuseone() ? to : from;
  const int device = index_of(ours.device());
  Stream& stream = current_stream(device);
  const at::Tensor source = part_of(from), target = part_of(to);
  const at::Tensor part = from.is_privateuseone() ? source : target;
  if (has(Flaw::kHastyReads) && from.is_privateuseone()) {
    copy_values(device, target, source);
  } else if (non_blocking && !has(Flaw::kBlockingCopies) && is_pinned(theirs.const_data_ptr())) {
    record_pinned_use(theirs.const_data_ptr(), to_c10(stream));
    submit(stream, to.nbytes(), [=] { copy_part(device, target, source, part); });
  } else if (non_blocking && !has(Flaw::kBlockingCopies) && strict()) {
    submit(stream, to.nbytes(),
           [=, kept = theirs.storage()] { copy_part(device, target, source, part); });
  } else {
    stream.run([&] { copy_part(device, target, source, part); });
  }
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(self.layout() == at::kStrided && to.layout() == at::kStrided,
              "sim: only strided tensors can be copied");
  const at::Tensor from = self.sizes() == to.sizes() ? self : self.expand(to.sizes());
  if (to.numel() == 0) return to;
  const int device = index_of(to.is_privateuseone() ? to.device() : from.device());
  const bool both = from.is_privateuseone() && to.is_privateuseone();
  TORCH_CHECK(both || from.is_cpu() || to.is_cpu(), "sim: cannot copy from ", from.device(), " to ",
              to.device());
  if (both && index_of(from.device()) == device)
    submit(current_stream(device), to.nbytes(), [=, source = as_host(from), target = as_host(to)] {
      copy_values(device, target, source);
    });
  else if (both)
    copy_between_devices(from, to);
  else
    copy_with_host(from, to, non_blocking);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

at::Tensor& fill_with_scalar(at::Tensor& self, const at::Scalar& value) {
  check_offered("aten::fill_");
  if (self.numel() == 0) return self;
  const int device = index_of(self.device());
  submit(current_stream(device), self.nbytes(), [device, target = as_host(self), value]() mutable {
    WorkTime time(device);
    time.kernel(target.nbytes(), time.if_peers(target.storage().data(), target.nbytes()));
    const Window writes = window_of(target);
    target.fill_(value);
  });
  return self;
}

at::Tensor& fill_with_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  if (value.is_cpu()) return fill_with_scalar(self, value.item());
  if (self.numel() > 0) copy_from(value, self, true);
  return self;
}

at::Tensor& zero_(at::Tensor& self) {
  check_offered("aten::zero_");
  return fill_with_scalar(self, 0);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("fill_.Scalar", fill_with_scalar);
  m.impl("fill_.Tensor", fill_with_tensor);
  m.impl("zero_", zero_);
}

// Conjugate and negative views are copied as what they mean, by the host's copy. Left to torch they
// would be cloned first, which copies them, and so on.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace torch_sim

#include "process_group/symmetric/allocation.h"

#include <unistd.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {
namespace {

constexpr size_t kPadAlignment = 256;

void refuse_unless_shareable(const DeviceAccess& access) {
  if (access.is_host()) return;
  const std::string reason = access.why_not_shareable();
  if (reason.empty()) return;
  throw_error(ErrorCode::kUnsupported,
              "no symmetric memory on " + access.device().str() + ": " + reason +
                  ", by which other ranks would map its memory; use an ordinary tensor and the "
                  "collectives of torch.distributed");
}

void fill_with_zeros(const DeviceAccess& access, void* at, size_t bytes) {
  const c10::Device device = access.device();
  at::for_blob(at, {static_cast<int64_t>(bytes)})
      .options(at::TensorOptions().dtype(at::kByte).device(device))
      .target_device(device)
      .make_tensor()
      .zero_();
}

// Throws unless buffer and pad fit in `size` bytes from `offset`. `token` is untrusted.
void check_room(size_t size, uint64_t offset, const AllocationToken& token) {
  const uint64_t left = offset < size ? size - offset : 0;
  const bool fits = token.buffer_bytes <= left && token.pad_bytes <= left &&
                    Allocation::pad_offset(token.buffer_bytes) <= left - token.pad_bytes;
  if (!fits)
    throw_error(
        ErrorCode::kMismatch,
        "the " + std::to_string(size) + " bytes that were opened are fewer than what was offered");
}

}  // namespace

bool Limbo::used(const Sharers& sharers) {
  return !std::all_of(sharers.begin(), sharers.end(),
                      [](const auto& signals) { return signals->others_left(); });
}

void Limbo::add(c10::DataPtr memory, Sharers sharers) {
  if (!used(sharers)) return;
  std::lock_guard lock(mutex_);
  kept_.push_back({std::move(memory), std::move(sharers), ::getpid()});
}

void Limbo::sweep() {
  std::vector<Kept> free;  // freed outside the lock
  std::lock_guard lock(mutex_);
  const auto first_free = std::partition(kept_.begin(), kept_.end(), [](const Kept& kept) {
    return kept.process != ::getpid() || used(kept.sharers);
  });
  std::move(first_free, kept_.end(), std::back_inserter(free));
  kept_.erase(first_free, kept_.end());
}

size_t Allocation::pad_offset(size_t buffer_bytes) {
  return (buffer_bytes + kPadAlignment - 1) / kPadAlignment * kPadAlignment;
}

Allocation::Allocation(const DeviceAccess& access, size_t buffer_bytes, size_t pad_bytes,
                       std::shared_ptr<Limbo> limbo)
    : access_(access),
      buffer_bytes_(buffer_bytes),
      pad_bytes_(pad_bytes),
      limbo_(std::move(limbo)) {
  const size_t bytes = pad_offset(buffer_bytes) + pad_bytes;
  if (access_.is_host()) {
    host_ = SharedMemory::create(bytes);
    base_ = host_.data();
    return;
  }
  refuse_unless_shareable(access_);
  const c10::DeviceGuard guard(access_.device());
  device_ = c10::GetAllocator(access_.device().type())->allocate(bytes);
  base_ = static_cast<std::byte*>(device_.get());
  fill_with_zeros(access_, base_ + pad_offset(buffer_bytes), pad_bytes);
  access_.synchronize_current_stream();
}

Allocation::~Allocation() {
  if (!access_.is_host()) limbo_->add(std::move(device_), std::move(sharers_));
}

bool Allocation::holds(const void* at) const {
  const auto offset =
      static_cast<size_t>(static_cast<const std::byte*>(at) - base_);  // huge if `at` is below
  return offset < std::max(buffer_bytes_, size_t{1});
}

AllocationToken Allocation::token() const {
  AllocationToken token{.buffer_bytes = buffer_bytes_, .pad_bytes = pad_bytes_};
  if (access_.is_host()) {
    token.host = host_.token();
    return token;
  }
  const ExportedRange range = access_.export_range(base_, pad_offset(buffer_bytes_) + pad_bytes_);
  token.device = range.handle;
  token.offset = range.offset;
  return token;
}

void Allocation::share(std::shared_ptr<const Signals> signals) {
  std::lock_guard lock(mutex_);
  sharers_.push_back(std::move(signals));
}

PeerAllocation::PeerAllocation(const DeviceAccess& access, const AllocationToken& token) {
  if (access.is_host()) {
    host_ = SharedMemory::open(token.host);
    check_room(host_.size(), 0, token);
    base_ = host_.data();
    return;
  }
  device_ = access.open_peer(token.device);
  check_room(device_.size(), token.offset, token);
  base_ = device_.data() + token.offset;
}

}  // namespace hccl_like

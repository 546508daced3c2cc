#include "process_group/symmetric/memory.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/result.h"
#include "process_group/diagnosis/errors.h"

namespace hccl_like {

Memory::Memory(const Handshake& handshake, std::shared_ptr<Allocation> allocation,
               Acquaintance acquaintance, std::chrono::milliseconds default_timeout,
               Unlocked unlocked)
    : access_(allocation->access()),
      group_(handshake.group),
      process_(::getpid()),
      rank_(handshake.rank),
      default_timeout_(default_timeout),
      unlocked_(std::move(unlocked)),
      allocation_(std::move(allocation)),
      acquaintance_(std::move(acquaintance)),
      steps_(std::make_unique<Steps>(access_, unlocked_)) {
  const size_t pad_offset = Allocation::pad_offset(allocation_->buffer_bytes());
  for (const auto& peer : acquaintance_.peers) {
    std::byte* const buffer = peer ? peer->buffer() : allocation_->buffer();
    buffers_.push_back(buffer);
    pads_.push_back(buffer + pad_offset);
  }
}

Memory::~Memory() {
  if (c10d::symmetric_memory::is_finalizing() || ::getpid() != process_) {
    // At program exit, or in a forked child that is no member: leak; the system frees the mappings.
    (void)steps_.release();
    for (auto& peer : acquaintance_.peers) (void)peer.release();
    new std::shared_ptr<Allocation>(std::move(allocation_));
    return;
  }
  try {
    unlocked_([&] { access_.synchronize_device(); });
  } catch (const std::exception& error) {
    log_warn(std::string("symmetric memory is let go of without waiting for its device: ") +
             error.what());
  }
  steps_.reset();
  acquaintance_.peers.clear();
  acquaintance_.signals->leave();
}

std::vector<void*> Memory::get_buffer_ptrs() {
  throw_if_failed("get_buffer");
  return buffers_;
}

std::vector<void*> Memory::get_signal_pad_ptrs() {
  throw_if_failed("get_signal_pad");
  return pads_;
}

void** Memory::get_buffer_ptrs_dev() { return on_device(buffers_on_device_, buffers_); }
void** Memory::get_signal_pad_ptrs_dev() { return on_device(pads_on_device_, pads_); }

void** Memory::on_device(at::Tensor& array, const std::vector<void*>& pointers) {
  if (!array.defined()) {
    std::vector<int64_t> numbers;
    for (void* pointer : pointers) numbers.push_back(reinterpret_cast<int64_t>(pointer));
    array = at::tensor(numbers, at::kLong).to(access_.device());
  }
  return static_cast<void**>(array.data_ptr());
}

void Memory::barrier(int channel, size_t timeout_ms) {
  check_channel(channel);
  run("barrier", [signals = acquaintance_.signals, channel, wait = timeout(timeout_ms)] {
    return signals->barrier(channel, Deadline::after(wait));
  });
}

void Memory::put_signal(int dst_rank, int channel, size_t timeout_ms) {
  check_rank(dst_rank);
  check_channel(channel);
  run("put_signal",
      [signals = acquaintance_.signals, dst_rank, channel, wait = timeout(timeout_ms)] {
        return signals->put(dst_rank, channel, Deadline::after(wait));
      });
}

void Memory::wait_signal(int src_rank, int channel, size_t timeout_ms) {
  check_rank(src_rank);
  check_channel(channel);
  run("wait_signal",
      [signals = acquaintance_.signals, src_rank, channel, wait = timeout(timeout_ms)] {
        return signals->wait(src_rank, channel, Deadline::after(wait));
      });
}

Memory::Turn Memory::turn() const {
  return {acquaintance_.signals, acquaintance_.signals->channels() - 1, default_timeout_};
}

void Memory::run(const char* what, Steps::Step step, StepNeeds needs) {
  throw_if_failed(what);
  try {
    steps_->run(std::move(step), std::move(needs));
  } catch (const Exception& exception) {
    throw_torch_error(exception.error(), std::string("SymmetricMemory.") + what);
  }
}

void Memory::throw_if_failed(const char* what) const {
  TORCH_CHECK(
      ::getpid() == process_,
      "hccl-like: this process was forked from one that shares symmetric memory, and has no "
      "part in it");
  if (const auto error = acquaintance_.signals->failure())
    throw_torch_error(*error, std::string("SymmetricMemory.") + what);
}

void Memory::check_channel(int channel) const {
  const int channels = acquaintance_.signals->channels() - 1;
  TORCH_CHECK_VALUE(channel >= 0 && channel < channels, "hccl-like: channel ", channel,
                    " is not one of 0 to ", channels - 1,
                    "; set_signal_pad_size makes more of them, ", sizeof(uint32_t),
                    " bytes a rank for each");
}

void Memory::check_rank(int rank) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < static_cast<int>(buffers_.size()), "hccl-like: rank ", rank,
                    " is not in group '", group_, "', which has ", buffers_.size());
}

std::chrono::milliseconds Memory::timeout(size_t timeout_ms) const {
  return timeout_ms == 0 ? default_timeout_ : std::chrono::milliseconds(timeout_ms);
}

}  // namespace hccl_like

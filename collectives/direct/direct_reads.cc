// Direct calls that exchange private memory: each rank reads the others' through the kernel, if all may and have found it faster.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "collectives/direct/direct_run.h"
#include "core/process_memory.h"

namespace hccl_like {

// Where one rank gives and the others take both ends work through a lane, but only one of them through the kernel.
bool DirectRun::could_read() const {
  return call_->pace != nullptr && shape_.payload >= Pace::kLeast &&
         (call_->collective == Collective::kAllGather ||
          call_->collective == Collective::kAllToAll) &&
         !shares_input() && call_->shared_output == nullptr;
}

// Where the others shall read this rank's input; 0 if it does not wish that.
uint64_t DirectRun::readable_input() const {
  if (!could_read() || call_->pace->choose(shape_.payload) == CopyWay::kShared) return 0;
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != rank_ && !call_->board->readable_process(rank)) return 0;
  const std::byte* begin = nullptr;
  size_t bytes = 0;
  for (int to = 0; to < (shape_.kind == Shape::Kind::kChunks ? ranks_ : 1); ++to) {
    const auto chunk = static_cast<size_t>(input_chunk(to));
    const size_t size = call_->input->bytes(chunk);
    if (size == 0) continue;
    const Region region = call_->input->contiguous(chunk, 0, size);
    if (region.data == nullptr || (begin != nullptr && region.data != begin + bytes)) return 0;
    if (begin == nullptr) begin = region.data;
    bytes += size;
  }
  return reinterpret_cast<uint64_t>(begin);
}

// Alike on all ranks: each sees what all have told. One that gives nothing tells no place, and then nobody reads.
bool DirectRun::agrees_to_read() const {
  return readable_input_ != 0 &&
         std::ranges::all_of(peers_, [](const Peer& peer) { return peer.input_address != 0; });
}

// What counts is this rank's own work and what it waits for in the middle of it, not that others came late.
void DirectRun::learn_pace() const {
  if (!could_read() || roles_.lends() != reads_) return;
  call_->pace->learn(shape_.payload, reads_ ? CopyWay::kKernel : CopyWay::kShared,
                     shown_in_ + (std::chrono::steady_clock::now() - met_at_));
}

// What another rank gives to this one. False if it cannot be read: the rank is gone, which its link will tell, or the
// memory is of a kind that the kernel does not read.
bool DirectRun::read(const Pieces& to, int from, Span range) {
  const int process = *call_->board->readable_process(from);
  uint64_t at = peer(from).input_address + range.begin;
  for (size_t i = 0; i < to.size(); ++i) {
    if (!read_process(process, to[i].data, at, to[i].bytes)) {
      const int why = errno;
      if (why == ESRCH)
        lost_ = true;
      else
        failure_ = Error{
            .code = ErrorCode::kSystem,
            .message =
                "the memory of rank " + std::to_string(from) +
                " cannot be read by process_vm_readv: " + std::strerror(why) +
                ". If its tensor lies in memory of a special kind, copy it into another one first",
            .peer = from};
      return false;
    }
    at += to[i].bytes;
  }
  return true;
}

}  // namespace hccl_like

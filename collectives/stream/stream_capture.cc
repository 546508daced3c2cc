// Calls that graphs of the device capture.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "collectives/stream/stream_execution.h"
#include "core/base/deadline.h"

namespace hccl_like {
namespace {

constexpr std::chrono::milliseconds kPeersPatience{100};

}  // namespace

StreamExecution::~StreamExecution() {
  if (mine_.small != 0 && (communicator_->has_failed() || !replays_are_over())) own_scratch_.keep();
}

// Whether no kernel of another rank reads this rank's area or writes flags to it any more; waits a
// little. This rank's replays are over, hence those of others have begun.
bool StreamExecution::replays_are_over() const {
  const Deadline deadline = Deadline::after(kPeersPatience);
  for (int peer = 0; peer < size(); ++peer) {
    const auto* const state =
        captured_.words->of(peer, captured_.first + static_cast<size_t>(peer));
    while (state != nullptr &&
           __atomic_load_n(const_cast<const uint64_t*>(state), __ATOMIC_ACQUIRE) != 0) {
      if (deadline.expired()) return false;
      std::this_thread::yield();
    }
  }
  return true;
}

bool StreamExecution::disagree(int peer) const {
  const bool captures = mine_.use == Use::kCaptured;
  communicator_->engine().abort(
      *communicator_,
      {ErrorCode::kMismatch,
       "rank " + std::to_string(communicator_->number_of(captures ? rank() : peer)) + " captures " +
           exchange_->describe() + " in a graph, and rank " +
           std::to_string(communicator_->number_of(captures ? peer : rank())) + " does not"});
  return false;
}

// Whether one kernel can make the call.
bool StreamExecution::may_be_small() const {
  return captured_.words != nullptr && call_.collective == Collective::kAllReduce &&
         executor_.device_.can_all_reduce_small() && size() > 1 && ranks() <= HCD_SMALL_RANKS &&
         input_.bytes == output_.bytes && input_.bytes <= HCD_SMALL_BYTES &&
         communicator_->own(call_.collective) == nullptr;
}

// Other ranks reach only the area.
void StreamExecution::prepare_small() {
  const Device& device = executor_.device_;
  const int index = executor_.index_;
  const std::vector<std::byte> zeros(HCD_SMALL_AREA(ranks(), small_payload()));
  own_scratch_ = device.allocate(index, zeros.size()).value();
  scratch_ = {own_scratch_.data(), 0};
  const hcd_stream stream = executor_.stream_.get();
  throw_if(device.copy_from_host(index, scratch_, zeros.data(), zeros.size(), stream));
  throw_if(device.synchronize(index, stream));
  mine_.small = 1;
  mine_.able = show({scratch_, zeros.size()}, mine_.scratch, executor_.last_scratch_);
}

size_t StreamExecution::small_payload() const {
  constexpr size_t kGrain = 256;
  return std::max((input_.bytes + kGrain - 1) / kGrain * kGrain, kGrain);
}

std::optional<Error> StreamExecution::capture_small(hcd_stream stream) const {
  std::vector<hcd_ref> areas;
  for (const Reached& reached : reached_) areas.push_back(reached.scratch);
  const auto word = [&](int of) {
    return captured_.words->own(captured_.first + static_cast<size_t>(of));
  };
  const int next = (rank() + 1) % size();
  // The watch ends the waits for words of other ranks if the group has failed.
  const Device::SmallGroup group{.rank = rank(),
                                 .payload = small_payload(),
                                 .areas = areas,
                                 .state = word(rank()),
                                 .stop = word(next),
                                 .completed = word(size() + rank()),
                                 .fingerprint = exchange_->fingerprint()};
  return executor_.device_.all_reduce_small(executor_.index_, group, output_.begin, input_.begin,
                                            input_.bytes / size_of(call_.type), call_.type,
                                            call_.op, scaling_, stream);
}

std::optional<Error> StreamExecution::capture_program(hcd_stream stream) const {
  const Device& device = executor_.device_;
  const int index = executor_.index_;
  const StreamProgram program = replayable(compiled().program, size());
  auto* const state = captured_.words->own(captured_.first + static_cast<size_t>(rank()));
  auto error = device.write_word(index, stream, state, ReplayWatch::kRuns);
  if (!error) error = queue_stream(device, index, stream, stream, program, stream_call());
  if (!error) error = device.write_word(index, stream, state, 0);
  return error;
}

std::optional<Error> StreamExecution::capture(hcd_stream stream) {
  const auto error = mine_.small != 0 ? capture_small(stream) : capture_program(stream);
  if (error) return error;
  const auto timeout = call_.timeout.count() > 0 ? call_.timeout : communicator_->timeout();
  executor_.watch().add(captured_, timeout, exchange_->describe());
  return std::nullopt;
}

}  // namespace hccl_like

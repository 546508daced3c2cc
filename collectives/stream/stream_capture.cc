// Calls that graphs of the device capture.
#include <string>

#include "collectives/stream/stream_execution.h"

namespace hccl_like {

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

std::optional<Error> StreamExecution::capture(hcd_stream stream) {
  const Device& device = executor_.device_;
  const int index = executor_.index_;
  const StreamProgram program = replayable(compiled().program, size());
  auto* const state = captured_.words->own(captured_.first + static_cast<size_t>(rank()));
  auto error = device.write_word(index, stream, state, ReplayWatch::kRuns);
  if (!error) error = queue_stream(device, index, stream, stream, program, stream_call());
  if (!error) error = device.write_word(index, stream, state, 0);
  if (error) return error;
  const auto timeout = call_.timeout.count() > 0 ? call_.timeout : communicator_->timeout();
  executor_.watch().add(captured_, timeout, exchange_->describe());
  return std::nullopt;
}

}  // namespace hccl_like

#pragma once
// The communicators of one process group: one for host tensors, one for the accelerator's.
#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/communicator.h"
#include "process_group/calls/request.h"

namespace hccl_like {

// Calls on host tensors and calls on device tensors are numbered apart, as those of two backends
// would be: a checkpoint that a thread writes from host tensors does not get between the steps of
// the training. Both use the same links, so the second communicator costs no connection and no
// message. A failure of either ends both.
//
// Immutable; any thread.
class Communicators {
 public:
  // Made by all ranks of `host` at the same point, for the second is split off it.
  explicit Communicators(std::shared_ptr<Communicator> host);

  // For a call on `device`. A barrier has no tensors, and ranks need not agree about the device
  // that it is about.
  const std::shared_ptr<Communicator>& of(c10::Device device, Collective collective) const;
  const std::shared_ptr<Communicator>& host() const { return host_; }

  void abort(const std::string& reason) const;
  void set_timeout(std::chrono::milliseconds timeout) const;
  void force(const ForcedAlgorithms& algorithms) const;
  std::optional<Error> failure() const;
  // Calls on both.
  uint64_t sequence() const;

 private:
  std::shared_ptr<Communicator> host_;
  std::shared_ptr<Communicator> device_;
};

}  // namespace hccl_like

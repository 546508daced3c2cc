#pragma once
// The two communicators of one process group: one for host tensors, one for device tensors.
#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/communicator.h"
#include "process_group/calls/request.h"
#include "process_group/diagnosis/result_checks.h"

namespace hccl_like {

// Host calls and device calls have separate sequence numbers, as in two backends: a checkpoint
// thread may issue host calls between device calls. Both communicators use the same links at no
// extra cost in connections or messages. A failure of either fails both. Ranks that may pass host
// tensors where others pass device tensors (DeviceMix::kHost) use the host communicator for all
// calls. Immutable; any thread.
class Communicators {
 public:
  // All ranks of `host` construct this at the same point, because it splits `host`.
  explicit Communicators(std::shared_ptr<Communicator> host);

  // A barrier always uses the host communicator, because ranks need not agree about its device.
  const std::shared_ptr<Communicator>& of(c10::Device device, Collective collective) const;
  const std::shared_ptr<Communicator>& host() const { return host_; }
  const std::shared_ptr<Communicator>& device() const { return device_; }

  // Null without HCCL_LIKE_VERIFY.
  const std::shared_ptr<ResultChecks>& checks() const { return checks_; }

  void abort(const std::string& reason) const;
  void set_timeout(std::chrono::milliseconds timeout) const;
  void set_deterministic() const;
  void set_compression(Compression compression) const;
  void force(const ForcedAlgorithms& algorithms) const;
  void add_own(const std::shared_ptr<const Algorithm>& algorithm) const;
  std::optional<Error> failure() const;
  uint64_t sequence() const;

 private:
  std::shared_ptr<Communicator> host_;
  std::shared_ptr<Communicator> device_;
  std::shared_ptr<ResultChecks> checks_;
};

}  // namespace hccl_like

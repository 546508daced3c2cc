#pragma once
// Compares the results of every n-th call of a group across ranks (HCCL_LIKE_VERIFY).
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/engine/communicator.h"
#include "core/base/deadline.h"
#include "core/base/error.h"
#include "process_group/calls/calls.h"

namespace hccl_like {

class ResultChecks;

// A call whose result is compared, until its digest is taken. Without take() it is left out: it was
// refused, which happens on all ranks alike or fails the group.
class CheckedCall {
 public:
  CheckedCall(std::shared_ptr<ResultChecks> checks, size_t lane, uint64_t number,
              std::vector<at::Tensor> outputs)
      : checks_(std::move(checks)), lane_(lane), number_(number), outputs_(std::move(outputs)) {}
  ~CheckedCall();
  CheckedCall(const CheckedCall&) = delete;
  CheckedCall& operator=(const CheckedCall&) = delete;

  // Stream order: queues a copy of the outputs on the current stream, before anything that the
  // program queues there later. take() then looks at the copy.
  void copy_in_stream();
  // The outputs are final, and the program has not seen that yet: hashes them, and sends the digest
  // once all earlier checked calls have sent theirs. Waits for no rank. Idempotent.
  void take();

 private:
  const std::shared_ptr<ResultChecks> checks_;
  const size_t lane_;
  const uint64_t number_;  // of the checked calls of its lane
  std::vector<at::Tensor> outputs_;
  std::once_flag taken_;
};

// The digests travel on communicators of their own, as calls that nobody waits for, so a rank that
// is late with a checked call delays no other call. Any thread.
class ResultChecks : public std::enable_shared_from_this<ResultChecks> {
 public:
  // Null without the setting, or with one rank. All ranks call this at the same point, as it splits
  // both communicators.
  static std::shared_ptr<ResultChecks> of(Communicator& host, Communicator& device);

  // Counts the call, in the order of calls. The call, if its result is to be compared.
  std::shared_ptr<CheckedCall> next(const Issue& issue);
  // The first call whose results differ, as far as the digests have arrived.
  std::optional<Error> difference();
  // The same, after all digests that were sent have arrived or the deadline has passed.
  std::optional<Error> last_difference(Deadline deadline);

 private:
  friend class CheckedCall;
  struct Record {
    uint64_t digest = 0;
    uint64_t known = 0;  // 0: this rank could not take one
  };
  struct Entry {
    std::string what;  // "all_reduce #12 (4096 bytes on cpu)"
    std::optional<Record> mine;
    std::vector<Record> all{};              // by rank
    std::shared_ptr<Operation> exchange{};  // once it is sent
  };
  // Calls on host tensors and on device tensors are numbered apart, or all in the first lane
  // (communicators.h).
  struct Lane {
    std::shared_ptr<Communicator> communicator;
    uint64_t calls = 0;
    std::map<uint64_t, Entry> checked;  // by number, until compared
  };

  void taken(size_t lane, uint64_t number, std::optional<Record> mine);
  static std::optional<Error> compare(const Entry& call, const Communicator& communicator);

  uint32_t every_ = 0;
  std::mutex mutex_;
  std::array<Lane, 2> lanes_;
};

}  // namespace hccl_like

#pragma once
// Identity of a process group and its calls, as external tools see them.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hccl_like {

// Immutable.
struct GroupView {
  std::string name;  // torch's name, "0" for the default group
  std::string description;
  int rank = 0;
  int size = 1;
  std::vector<uint64_t> global_ranks;  // by rank of the group
  // global_ranks as an arithmetic progression; stride is -1 if they form none.
  int start = 0;
  int stride = 1;

  uint64_t global_rank() const { return global_ranks[static_cast<size_t>(rank)]; }
};

// Call at or after the group's first call: torch names a group after it constructs the backend.
GroupView view_of(const c10d::Backend& backend, const c10d::Backend::Options& options);

// Sequence numbers of a call, from 1. All collectives of a coalescing block share one number, and
// so do its messages. `operation` counts every call, and every block once more.
struct CallNumber {
  uint64_t collective = 0;
  uint64_t message = 0;
  uint64_t operation = 0;
  bool is_message = false;
  bool is_block = false;

  // The number in errors, the timeout table and the flight recorder.
  uint64_t of_kind(bool message_kind) const { return message_kind ? message : collective; }
  uint64_t number() const { return of_kind(is_message); }
};

// Numbers the calls of one group in call order. Thread-safe.
class CallCounter {
 public:
  CallNumber next(bool is_message);
  // Opens a block: its calls share numbers until end_block().
  void begin_block();
  // Returns the numbers of the block.
  CallNumber end_block();

 private:
  std::mutex mutex_;
  CallNumber last_;
  bool in_block_ = false;
  bool counted_collective_ = false;
  bool counted_message_ = false;
};

}  // namespace hccl_like

#pragma once
// How tools outside this project know a process group and the calls in it.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hccl_like {

// Immutable.
struct GroupView {
  std::string name;  // torch's, "0" for the default group
  std::string description;
  int rank = 0;
  int size = 1;
  std::vector<uint64_t> global_ranks;  // by rank of the group
  // global_ranks as an arithmetic progression; a stride of -1 if they are none.
  int start = 0;
  int stride = 1;

  uint64_t global_rank() const { return global_ranks[static_cast<size_t>(rank)]; }
};

// torch names a group after it has made its backend, so this is for the time of the first call.
GroupView view_of(const c10d::Backend& backend, const c10d::Backend::Options& options);

// The numbers of a call, from 1. A coalescing block has one of either kind, for all the calls in
// it; `operation` counts these too.
struct CallNumber {
  uint64_t collective = 0;
  uint64_t message = 0;
  uint64_t operation = 0;
  bool is_message = false;
  bool is_block = false;

  // The one of its kind: the number in errors, in the table after a time-out and in the flight
  // recorder.
  uint64_t of_kind(bool message_kind) const { return message_kind ? message : collective; }
  uint64_t number() const { return of_kind(is_message); }
};

// Numbers the calls of one group in the order in which they are made. Any thread.
class CallCounter {
 public:
  CallNumber next(bool is_message);
  // In between, all calls share their numbers.
  void begin_block();
  // The numbers of the block itself.
  CallNumber end_block();

 private:
  std::mutex mutex_;
  CallNumber last_;
  bool in_block_ = false;
  bool counted_collective_ = false;
  bool counted_message_ = false;
};

}  // namespace hccl_like

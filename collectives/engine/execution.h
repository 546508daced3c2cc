#pragma once
// One running operation: walks a schedule round by round, with several slices in flight.
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/call/plan.h"
#include "collectives/compression/compressed_messages.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/scratch_pool.h"
#include "collectives/same_host/same_host_stage.h"
#include "core/base/deadline.h"
#include "transport/link/link.h"
#include "transport/link/self_messages.h"

namespace hccl_like {

// Driver only. Pinned in memory while it runs. Reused, so that a warm engine allocates nothing.
class Execution {
 public:
  void begin(std::shared_ptr<Operation> operation, ScratchPool& scratch, SelfMessages& self);
  // Makes all possible steps; true if any was made.
  bool advance();
  // Whether advance() could make a step on the board; checked before sleeping.
  bool could_advance() const { return stage_.could_advance(); }
  // Another rank's slot that shows another call.
  const std::optional<BoardMismatch>& mismatch() const { return stage_.mismatch(); }
  // The reason why it cannot finish, unless a link reports it.
  const Error* failure() const { return stage_.failure(); }
  bool finished() const { return slices_done_ == plan_->slices; }
  // Ends it, finished or not, and returns the scratch memory. The messages of an unfinished
  // execution must have been cancelled.
  std::shared_ptr<Operation> end();

  Operation& operation() const { return *operation_; }
  Deadline deadline() const { return deadline_; }
  Deadline::Clock::duration age(Deadline::Clock::time_point now) const {
    return now - operation_->started_;
  }
  uint32_t channel() const { return plan_->channel; }
  uint32_t first_slice() const { return plan_->first_slice; }
  // Whether it waits for messages of a collective.
  bool exchanges() const { return plan_->channel == 0 && !stage_.holds(); }
  // Peers that this rank has told that it waits for them in this call.
  std::vector<int>& told() { return told_; }
  CallNotice notice() const;
  // "in round 2 of 6, waiting for ranks 3, 5", or its second half
  std::string whereabouts() const;
  // Whether an unfinished message goes to or comes from `peer`.
  bool waits_for(int peer) const;
  // A receive from any source that has no sender yet.
  bool waits_for_anybody() const { return unbound_; }
  // All such peers; empty if any rank may be one.
  std::vector<int> waiting_for() const;

 private:
  struct Slice {
    uint32_t number = 0;
    uint32_t round = 0;
    uint32_t pending = 0;  // its unfinished messages
    bool active = false;
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    size_t sends_used = 0;
    size_t recvs_used = 0;
    CompressedMessages compressed;  // of the round
  };

  void start_clock();
  bool watch_device();
  void begin_schedule();
  // Whether the steps read a copy of the input, scaled or rounded.
  bool prepares_input() const { return on_the_way_.input != 1 || rounds_input_; }
  void prepare_input(const Slice& slice);
  bool is_compressed(const Step& step) const;
  void begin_compressed(Slice& slice);
  std::byte* scratch_place(Slot slot, const Slice& slice) const;
  bool bind_any_source();
  void start_slice(Slice& slice);
  void start_round(Slice& slice);
  void finish_slice(Slice& slice);
  void post(Slice& slice, const Step& step);
  SharedPlace place(const std::optional<ExportedRange>& range) const;
  template <class OneEnd>
  void hand_over(int peer, OneEnd& message);
  void compute(const Slice& slice, const Step& step);
  Part part(Slot slot, uint32_t slice) const;
  void add_pieces(Pieces& pieces, Slot slot, uint32_t count, const Slice& slice) const;
  int unbound_source(int peer) const;

  std::shared_ptr<Operation> operation_;
  const Plan* plan_ = nullptr;  // the operation's
  ScratchPool* pool_ = nullptr;
  SelfMessages* self_ = nullptr;
  Deadline deadline_ = Deadline::never();
  Layout input_, output_;
  BoardCall board_call_;
  SameHostStage stage_;
  std::shared_ptr<const DeviceCall> by_device_;  // null: this process moves the data
  bool device_began_ = false;
  size_t element_bytes_ = 1;
  size_t grain_ = 1;           // bytes at whose multiples the payload is cut
  bool rounds_input_ = false;  // to numbers that are encoded without loss
  std::vector<Slice> slices_;  // the first `window` are used
  std::vector<int> told_;
  uint32_t slices_started_ = 0;
  uint32_t slices_done_ = 0;
  bool scheduled_ = false;        // the schedule is mapped to the buffers
  bool unbound_ = false;          // a receive from any source has no sender yet
  std::byte* scratch_ = nullptr;  // `window` times the schedule's slots
  Scaling at_once_;               // for kReduce steps
  Scaling on_the_way_;  // for the input before a slice's first step and the output after its last
  std::vector<size_t> scratch_offsets_;
  size_t scratch_stride_ = 0;     // bytes of one slice's slots
  std::vector<Pieces> operands_;  // of a kReduce step; reused
  std::vector<const std::byte*> sources_;
};

using Executions = std::vector<std::unique_ptr<Execution>>;

}  // namespace hccl_like

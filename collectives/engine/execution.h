#pragma once
// One operation under way: a schedule walked round by round, in laps of which several are under
// way.
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/call/plan.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/scratch_pool.h"
#include "collectives/engine/self_messages.h"
#include "collectives/same_host/same_host_stage.h"
#include "core/base/deadline.h"
#include "transport/link/link.h"

namespace hccl_like {

// Used by the driver only. Pinned in memory while it runs, and reused for the next operation
// afterwards, so that a warm engine allocates nothing.
class Execution {
 public:
  void begin(std::shared_ptr<Operation> operation, ScratchPool& scratch, SelfMessages& self);
  // Makes every step that can be made now; true if any was.
  bool advance();
  // Whether advance() could make a step on the board: asked before a sleep.
  bool could_advance() const { return stage_.could_advance(); }
  // What another rank's line says, if it makes another call.
  const std::optional<BoardMismatch>& mismatch() const { return stage_.mismatch(); }
  // Why it cannot be finished, if its links do not tell.
  const Error* failure() const { return stage_.failure(); }
  bool finished() const { return laps_done_ == plan_->laps; }
  // Ends it, finished or not: forgets the operation and gives the scratch memory back. The messages
  // must have been cancelled if it was not finished.
  std::shared_ptr<Operation> end();

  Operation& operation() const { return *operation_; }
  Deadline deadline() const { return deadline_; }
  Deadline::Clock::duration age(Deadline::Clock::time_point now) const {
    return now - operation_->started_;
  }
  uint32_t channel() const { return plan_->channel; }
  uint32_t first_lap() const { return plan_->first_lap; }
  // Whether its messages are what it waits for.
  bool exchanges() const { return plan_->channel == 0 && !stage_.holds(); }
  // Peers to which this rank has said that it waits for them in this call.
  std::vector<int>& told() { return told_; }
  CallNotice notice() const;
  // "in round 2 of 6, waiting for ranks 3, 5", or the second half of it
  std::string whereabouts() const;
  // True if an unfinished message of this execution goes to or comes from `peer`.
  bool waits_for(int peer) const;
  // A receive from whoever comes first, and nobody has come.
  bool waits_for_anybody() const { return unbound_; }
  // All such peers; none if it may be anybody.
  std::vector<int> waiting_for() const;

 private:
  struct Lap {
    uint32_t number = 0;
    uint32_t round = 0;    // the round under way
    uint32_t pending = 0;  // its messages that are not done
    bool active = false;
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    size_t sends_used = 0;
    size_t recvs_used = 0;
  };

  void begin_schedule();
  // Whether the schedule works on scaled copies of the input.
  bool scales_input() const { return on_the_way_.input != 1; }
  void scale_input(const Lap& lap);
  std::byte* scratch_place(Slot slot, const Lap& lap) const;
  bool bind_any_source();
  void start_lap(Lap& lap);
  void start_round(Lap& lap);
  void finish_lap(Lap& lap);
  void post(Lap& lap, const Step& step);
  SharedPlace place(const std::optional<ExportedRange>& range) const;
  template <class OneEnd>
  void hand_over(int peer, OneEnd& message);
  void compute(const Lap& lap, const Step& step);
  Part part(Slot slot, uint32_t lap) const;
  void add_pieces(Pieces& pieces, Slot slot, uint32_t count, const Lap& lap) const;
  int unbound_source(int peer) const;

  std::shared_ptr<Operation> operation_;
  const Plan* plan_ = nullptr;  // the operation's
  ScratchPool* pool_ = nullptr;
  SelfMessages* self_ = nullptr;
  Deadline deadline_ = Deadline::never();
  Layout input_, output_;
  BoardCall board_call_;
  SameHostStage stage_;
  size_t element_bytes_ = 1;
  std::vector<Lap> laps_;  // the first `window` are used
  std::vector<int> told_;
  uint32_t laps_started_ = 0;
  uint32_t laps_done_ = 0;
  bool scheduled_ = false;        // the schedule is laid out over the buffers
  bool unbound_ = false;          // a receive from any source that nobody has answered yet
  std::byte* scratch_ = nullptr;  // `window` times the schedule's slots
  Scaling at_once_;               // of a kReduce step
  Scaling on_the_way_;  // of the input before a lap's first step, the output after its last
  std::vector<size_t> scratch_offsets_;
  size_t scratch_stride_ = 0;     // bytes of one lap's slots
  std::vector<Pieces> operands_;  // of a kReduce step; kept to be reused
  std::vector<const std::byte*> sources_;
};

}  // namespace hccl_like

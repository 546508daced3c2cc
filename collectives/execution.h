#pragma once
// One operation under way: a schedule walked round by round, in laps of which several are under way.
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/operation.h"
#include "collectives/schedule.h"
#include "core/deadline.h"
#include "transport/link.h"

namespace hccl_like {

// Recycled blocks of scratch memory, 64-byte aligned, so that no operation touches fresh pages. Used by the driver only.
class ScratchPool {
 public:
  ~ScratchPool();
  std::byte* take(size_t bytes);
  void give_back(std::byte* block);

 private:
  struct Block {
    std::byte* data;
    size_t bytes;
    bool used;
  };
  std::vector<Block> blocks_;
};

// What prepare() found out, all of it the same on every rank but for the schedule itself.
struct Plan {
  const Schedule* schedule = nullptr;  // owned by the communicator
  uint32_t laps = 1;
  uint32_t window = 1;                 // laps under way at once
  Reduction reduction{};
  uint64_t fingerprint = 0;
  uint32_t channel = 0;                // see Tag
};

// Used by the driver only. Pinned in memory while it runs, and reused for the next operation afterwards, so that a warm
// engine allocates nothing.
class Execution {
 public:
  void begin(std::shared_ptr<Operation> operation, ScratchPool& scratch);
  // Makes every step that can be made now; true if any was.
  bool advance();
  bool finished() const { return laps_done_ == plan_->laps; }
  // Ends it, finished or not: forgets the operation and gives the scratch memory back. The messages must have been
  // cancelled if it was not finished.
  std::shared_ptr<Operation> end();

  Operation& operation() const { return *operation_; }
  Deadline deadline() const { return deadline_; }
  // "in round 2 of 6, waiting for ranks 3, 5"
  std::string whereabouts() const;
  // True if an unfinished message of this execution goes to or comes from `peer`.
  bool waits_for(int peer) const;

 private:
  struct Lap {
    uint32_t number = 0;
    uint32_t round = 0;      // the round under way
    uint32_t pending = 0;    // its messages that are not done
    bool active = false;
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    size_t sends_used = 0, recvs_used = 0;
    std::vector<int> send_peers, recv_peers;
  };

  bool bind_any_source();
  void prescale();
  void start_lap(Lap& lap);
  void start_round(Lap& lap);
  void finish_lap(Lap& lap);
  void post(Lap& lap, const Step& step);
  void compute(const Lap& lap, const Step& step);
  Part part(Slot slot, uint32_t lap) const;
  void add_pieces(Pieces& pieces, Slot slot, uint32_t count, const Lap& lap) const;
  std::byte* scratch_at(const Lap& lap, size_t index) const;
  Tag tag(const Lap& lap, int peer) const;
  Link& link(int peer) const;

  std::shared_ptr<Operation> operation_;
  const Plan* plan_ = nullptr;
  ScratchPool* pool_ = nullptr;
  Deadline deadline_ = Deadline::never();
  Layout input_, output_;
  size_t element_bytes_ = 1;
  std::vector<Lap> laps_;            // `window` of them are used
  uint32_t laps_started_ = 0;
  uint32_t laps_done_ = 0;
  bool unbound_ = false;             // a recv from any source that nobody has answered yet
  std::byte* scratch_ = nullptr;
  std::byte* scaled_ = nullptr;      // the scaled input of a premul-sum that must not write its input
  std::vector<size_t> scratch_offsets_;
  size_t scratch_stride_ = 0;        // bytes of one lap's slots
  mutable std::vector<const std::byte*> sources_;
};

}  // namespace hccl_like

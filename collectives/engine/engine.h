#pragma once
// Runs the operations of every communicator of this process. One thread at a time holds ("drives")
// it: whoever waits, or a background thread when operations run and nobody waits. See
// docs/threads.md.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collectives/call/disagreement.h"
#include "collectives/engine/caller_message.h"
#include "collectives/engine/execution.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/self_messages.h"
#include "core/base/deadline.h"
#include "core/machine/thread_pool.h"
#include "core/settings/config.h"
#include "transport/mesh/mesh.h"
#include "transport/same_host/peer_memory.h"
#include "transport/wire/poller.h"

namespace hccl_like {

class Engine {
 public:
  Engine(const Config& config, Poller& poller, Mesh& mesh);
  // No operation may be running. Joins the background thread.
  ~Engine();

  const Config& config() const { return config_; }
  // Any thread.
  PeerMemory& peer_memory() { return peer_memory_; }
  ThreadPool& thread_pool() { return thread_pool_; }
  // Where a call's memory lies for peers, if it is shared. `range` is one of the call's, which is
  // borrowed.
  SharedPlace place(const Call& call, const std::optional<ExportedRange>& range);
  // Any thread. Once for each call: every so many calls it takes note of memory that was freed.
  void count_call() {
    const uint32_t calls = calls_.load(std::memory_order_relaxed) + 1;
    calls_.store(calls, std::memory_order_relaxed);  // one that is lost does not matter
    if (calls % kCallsBetweenLooks == 0) look_at_memory();
  }
  // Any thread. Tells peers what this process has freed, and closes what they have.
  void look_at_memory();
  // Of writes into the process's staging buffers.

  // Any thread. Takes operations to run; makes their first steps at once if nobody else drives.
  // Without `waited_for`, the background thread is told to see to them.
  void launch(std::span<const std::shared_ptr<Operation>> operations, bool waited_for);

  // Any thread. Drives (or lets the present driver work) until the operation is done; false if
  // `deadline` passed first. The operation's own time-out is not this deadline: it ends the
  // operation with an error.
  bool wait(const Operation& operation, Deadline deadline);
  // The same for several operations, which may be done in any order.
  bool wait(std::span<const std::shared_ptr<Operation>> operations, Deadline deadline);
  // The same until `done` says so, which is asked in every step. Whoever makes it so by other means
  // than the end of an operation calls nudge().
  bool wait(const std::function<bool()>& done, Deadline deadline);
  // Any thread. Has whoever waits look again whether he may go.
  void nudge();

  // Any thread. Holds the engine, unless somebody else drives, while its maker moves messages
  // himself: of at most their links' eager_bytes, over links in shared memory.
  class CallerDriven {
   public:
    // For `most` messages of the communicator at most.
    CallerDriven(Engine& engine, const Communicator& communicator, size_t most);
    ~CallerDriven();
    CallerDriven(const CallerDriven&) = delete;
    CallerDriven& operator=(const CallerDriven&) = delete;

    bool holds() const { return driver_.owns_lock(); }
    // Room for the next message, a Send or a Recv; and, once it is filled, has it posted and its
    // first step made.
    template <class OneEnd>
    CallerMessage& next(const Call& call, Link* link) {
      CallerMessage& message = engine_.caller_messages_.emplace_back(&call, link);
      message.message.emplace<OneEnd>();
      return message;
    }
    void post(CallerMessage& message);
    // Makes the other steps, with a moment's backoff if asked for, and takes back what is not done
    // then. That is to be launched as an operation: its memory may be lent to the peer already.
    void finish(bool may_wait);
    std::span<CallerMessage> messages() const { return engine_.caller_messages_; }

   private:
    void settle(CallerMessage& message);
    void take_back();

    Engine& engine_;
    std::unique_lock<std::mutex> driver_;
    uint32_t pending_ = 0;
    bool news_ = false;
  };

  // Any thread. Ends every operation of the communicator with an error.
  void abort(Communicator& communicator, Error error);

  // Any thread. Takes the engine for set-up work that touches the mesh; `work` gets a function that
  // drives the other communicators one step, to be called while it waits.
  void with_mesh(const std::function<void(Mesh&, const std::function<void()>&)>& work);
  // Any thread. Has whoever drives run `work`, which may touch links and throws nothing, between
  // two steps; returns when it is over, also while operations run that are waited for.
  void run(std::function<void()> work);
  // Any thread. From now on peers that connect are let in also while nobody drives.
  void start_accept_thread();

  // Drives by hand, as whoever runs many engines from one thread does: while it lives, no thread is
  // begun for what is left to do, or to keep the door.
  class Turns {
   public:
    explicit Turns(Engine& engine) : engine_(engine) {
      engine_.wanted_.fetch_add(1);
      engine_.by_hand_.fetch_add(1);
    }
    ~Turns() {
      engine_.by_hand_.fetch_sub(1);
      engine_.wanted_.fetch_sub(1);
    }
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

    // Makes each step that can be made now; where there was none, goes to sleep once as a driver
    // does. True after a step.
    bool take();
    // Whether a thread would be begun without it.
    bool due() const { return engine_.unfinished(); }

   private:
    Engine& engine_;
  };

 private:
  friend class Communicator;
  static constexpr uint32_t kCallsBetweenLooks = 64;

  struct Errand {
    std::function<void()> work;
    std::atomic<bool> done{false};
  };
  struct Submission {
    std::shared_ptr<Operation> operation;  // to run; or, if null:
    std::shared_ptr<Communicator> aborted;
    std::optional<Error> error;
    std::shared_ptr<Errand> errand = nullptr;  // or, if both are
  };

  // Any thread.
  template <class Done>
  bool wait_until(Done done, Deadline deadline);

  // Only the thread that holds driver_ calls these.
  template <class Stop>
  void drive(Stop stop, Deadline deadline, bool background);
  template <class Stop>
  void drive_alone(Stop stop);
  bool step();
  bool take_submissions();
  void run(Errand& errand);
  bool advance_executions();
  void start(std::shared_ptr<Operation> operation);
  void finish(size_t index, std::optional<Error> error);
  void fail(Communicator& communicator, const Error& error, bool tell_peers);
  // One of its executions, null if there is none.
  const Execution* under_way(const Communicator& communicator) const;
  void lost(Communicator& communicator, int peer, const Error& why);
  void on_failure(const Execution& execution);
  void look_at_links(bool idle);
  void on_abort(Link& link, const AbortNotice& notice);
  // engine_calls.cc
  void on_mismatch(int peer, Communicator& communicator, const Link::Mismatch& mismatch);
  void on_mismatch(const Execution& execution);
  // A message in a device's memory has no way to or from that rank any more.
  void on_unreachable(int peer, Communicator& communicator);
  struct Disagreement {
    uint32_t sequence;
    uint64_t number;  // by which people know the call
    Claim mine, theirs;
    std::string_view unseen = kUnseen;
  };
  static constexpr std::string_view kUnseen =
      "they differ in the sizes of its chunks, in its algorithm, or in the root of a call before "
      "it";
  void disagree(Communicator& communicator, const Disagreement& disagreement);
  void ask_about(Communicator& communicator, Disagreement disagreement);
  bool is_in_doubt(const Communicator& communicator) const;
  void raise_doubts();
  bool raise_doubt(Communicator& communicator);
  void on_call(Link& link, const CallNotice& call);
  // Where calls have waited for a while: whether other ranks made others.
  void look_at_calls();
  void tell_calls();
  void compare_calls();
  std::optional<Disagreement> find_stray(const Communicator& communicator) const;
  void on_failure(Link& link);
  void look_at_deadlines();
  // Peers that are waited for without a connection: whether they are still there.
  void look_at_local_peers();
  void tell(Communicator& communicator, std::string_view reason, const Link* but);
  void sleep(Deadline deadline, bool background);

  // Any thread.
  bool unfinished() const { return running_ > 0 || owing_; }
  void leave(std::unique_lock<std::mutex> driver, bool waited_for);
  void hand_over(std::unique_lock<std::mutex> driver, bool waited_for);
  bool pass_on(std::unique_lock<std::mutex> driver);
  static bool is_large(const std::shared_ptr<Operation>& operation);
  // engine_background.cc
  void wake_background();
  void background();
  bool await_need();
  // engine_accept.cc
  void accept_thread();
  void end_accept_thread();
  // If a peer has told of its end already, it ends.
  void add(const std::shared_ptr<Communicator>& communicator);
  std::shared_ptr<Communicator> find_or_keep(const Link& link, const AbortNotice& notice);
  void remove(uint64_t id);
  std::shared_ptr<Communicator> find(uint64_t id) const;

  const Config& config_;
  Poller& poller_;
  Mesh& mesh_;
  PeerMemory peer_memory_;
  std::atomic<uint32_t> calls_{0};
  ThreadPool thread_pool_;

  std::mutex driver_;  // held by the thread that drives; guards what follows up to spare_
  std::vector<CallerMessage> caller_messages_;
  std::vector<std::unique_ptr<Execution>> active_;
  uint32_t steps_ = 0;
  bool gave_up_ = false;  // some communicator: peers that come in may have to be told
  Deadline::Clock::time_point next_look_{};  // at local peers
  // By communicator and rank: what it said last of the call that it is in, until this rank has made
  // it, too.
  struct Heard {
    uint64_t communicator;
    int rank;
    CallNotice call;
  };
  std::vector<Heard> heard_;
  Deadline::Clock::time_point next_look_at_calls_{};
  std::vector<std::unique_ptr<Execution>> spare_;
  ScratchPool scratch_;
  SelfMessages self_;

  std::mutex inbox_mutex_;
  std::vector<Submission> inbox_;
  std::vector<Submission> taken_;        // the driver's half of a double buffer
  std::atomic<bool> inbox_full_{false};  // something is in inbox_
  std::atomic<bool> sleeping_{false};    // the driver is about to sleep: ring after submitting
  std::atomic<bool> background_drives_{false};
  std::atomic<size_t> running_{0};  // submitted or active
  // Peers may wait for what was said to them and has not left this process.
  std::atomic<bool> owing_{false};
  std::atomic<size_t> large_{0};      // of these
  std::atomic<bool> crowded_{false};  // the ranks of some group outnumber this machine's cores

  std::atomic<int> wanted_{0};   // threads in wait() or with_mesh()
  std::atomic<int> by_hand_{0};  // Turns
  std::mutex turn_mutex_;
  std::condition_variable turn_;  // an operation is done, or the driver left
  uint64_t turn_epoch_ = 0;       // how often the driver left

  std::mutex background_mutex_;
  std::condition_variable background_wake_;
  bool background_needed_ = false;
  bool background_dozes_ = false;     // and looks for itself, within a moment, whether it is needed
  bool background_soon_ = false;      // what it finds then
  bool background_may_doze_ = false;  // next time: something small needed it
  std::atomic<bool> stopping_{false};
  std::thread background_;
  // The accept thread of the door, if its bell is valid: a thread lent by the process's life, where
  // there is one, or its own.
  Life* accept_threads_life_ = nullptr;
  std::thread accept_thread_;
  Fd accept_bell_;

  mutable std::mutex registry_mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<Communicator>> registry_;
  // The ends of groups that this process has not made yet, or is not in: the last few.
  struct EarlyAbort {
    uint64_t communicator;
    const Link* link;
    std::string reason;
  };
  std::vector<EarlyAbort> early_aborts_;

  // Disagreements about which the other rank has been asked; reported as they are after `until`. At
  // most one a communicator. The driver's, as the first few.
  struct Doubt {
    uint64_t communicator;
    Disagreement disagreement;
    Deadline until;
  };
  std::vector<Doubt> doubts_;
};

}  // namespace hccl_like

#pragma once
// Runs the operations of all communicators of this process. One thread at a time is the driver: a
// waiting caller, or the background thread if no caller waits. See docs/threads.md.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collectives/engine/caller_message.h"
#include "collectives/engine/execution.h"
#include "collectives/engine/group_table.h"
#include "collectives/engine/mismatch_detector.h"
#include "collectives/engine/operation.h"
#include "core/base/deadline.h"
#include "core/machine/background_thread.h"
#include "core/machine/backoff.h"
#include "core/machine/thread_pool.h"
#include "core/settings/config.h"
#include "transport/link/self_messages.h"
#include "transport/link/traffic.h"
#include "transport/mesh/accept_thread.h"
#include "transport/mesh/mesh.h"
#include "transport/same_host/commons.h"
#include "transport/same_host/peer_memory.h"
#include "transport/wire/poller.h"

namespace hccl_like {

class Engine {
 public:
  Engine(const Config& config, Poller& poller, Mesh& mesh);
  // No operation may be running. Joins the background thread.
  ~Engine();

  const Config& config() const { return config_; }
  // Any thread. For a thread whose program waits for the call.
  Backoff backoff() const { return Backoff(config_, /*own_core=*/!crowded_); }
  // Any thread.
  PeerMemory& peer_memory() { return peer_memory_; }
  ThreadPool& thread_pool() { return thread_pool_; }
  // Any thread. The memory that this process shows to local peers; null if it shows none.
  Exports* exports() const {
    return mesh_.commons() == nullptr ? nullptr : &mesh_.commons()->exports();
  }
  // Any thread. Call once for each call: runs look_at_memory() every kCallsBetweenLooks calls.
  void count_call() {
    const uint32_t calls = calls_.load(std::memory_order_relaxed) + 1;
    calls_.store(calls, std::memory_order_relaxed);  // a lost increment is harmless
    if (calls % kCallsBetweenLooks == 0) look_at_memory();
  }
  // Any thread. Tells peers which memory was freed here, and unmaps memory that peers have freed.
  void look_at_memory();

  // Any thread. Submits operations, and makes their first steps if no thread drives. Without
  // `waited_for`, the background thread finishes them.
  void launch(std::span<const std::shared_ptr<Operation>> operations, bool waited_for);

  // Any thread. Drives, or waits for the present driver, until the operation is done. False if
  // `deadline` passes first, which does not end the operation; its own timeout does.
  bool wait(const Operation& operation, Deadline deadline) {
    return wait([&] { return operation.done(); }, deadline);
  }
  // The same for several operations, in any order.
  bool wait(std::span<const std::shared_ptr<Operation>> operations, Deadline deadline);
  // The same until `done`, evaluated in every step. If anything but the end of an operation changes
  // its result, call nudge().
  bool wait(const std::function<bool()>& done, Deadline deadline) {
    return wait(done, deadline, Wait::kForPeers);
  }
  // The same without a deadline, for a wait of milliseconds, as for a device: sleeps early.
  void wait_long(const std::function<bool()>& done) {
    wait(done, Deadline::never(), Wait::kForLong);
  }
  // Any thread. Makes waiting threads evaluate their condition again.
  void nudge();

  // Any thread. Makes the caller the driver, unless another thread is, for caller-driven messages:
  // of at most their links' eager_bytes, over links in shared memory.
  class CallerDriven {
   public:
    // `most`: upper bound on the number of messages.
    CallerDriven(Engine& engine, const Communicator& communicator, size_t most);
    ~CallerDriven();
    CallerDriven(const CallerDriven&) = delete;
    CallerDriven& operator=(const CallerDriven&) = delete;

    bool holds() const { return driver_.owns_lock(); }
    // Adds a Send or a Recv to fill in; then post() posts it and makes its first step.
    template <class OneEnd>
    CallerMessage& next(const Call& call, Link* link) {
      CallerMessage& message = engine_.caller_messages_.emplace_back();
      message.call = &call;
      message.link = link;
      message.message.emplace<OneEnd>();
      return message;
    }
    void post(CallerMessage& message);
    // Makes the other steps, with backoff if `may_wait`, and withdraws unfinished messages. Launch
    // those as operations: the peer may already access their memory.
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

  // Any thread. For Communicator: makes it known here, until its destructor removes it. A failure
  // that a peer has already reported fails it.
  void add(const std::shared_ptr<Communicator>& communicator);
  void remove(const Communicator& communicator);
  // Any thread. See Mesh::describe().
  std::string describe(const Link& link) const { return mesh_.describe(link); }
  // Any thread. Ends every operation of the communicator with an error.
  void abort(Communicator& communicator, Error error);

  // Any thread. Runs `work` as the driver, for set-up that uses the mesh. While `work` waits, it
  // must call its second argument, which drives the other communicators one step.
  void with_mesh(const std::function<void(Mesh&, const std::function<void()>&)>& work);
  // Any thread. The driver runs `work` between two steps; `work` may use links and must not throw.
  // Blocks until `work` is done.
  void run(std::function<void()> work);
  // Any thread. From now on, connections are accepted also while no thread drives.
  void start_accept_thread();

  // Caller-driven mode, for a thread that runs many engines: while this exists, the engine starts
  // no background or accept thread.
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

    // Makes all possible steps; without one, sleeps once as a driver does. True after a step.
    bool take();
    // Whether the engine would start a thread without this.
    bool due() const { return engine_.unfinished(); }

   private:
    Engine& engine_;
  };

 private:
  static constexpr uint32_t kCallsBetweenLooks = 64;

  struct Task {
    std::function<void()> work;
    std::atomic<bool> done{false};
  };
  struct Submission {
    std::shared_ptr<Operation> operation;  // null: abort
    std::shared_ptr<Communicator> aborted;
    std::optional<Error> error;
    std::shared_ptr<Task> task = nullptr;  // set: neither of the two
  };

  enum class Wait { kForPeers, kForLong, kInBackground };
  bool wait(const std::function<bool()>& done, Deadline deadline, Wait how);

  // Driver only.
  template <class Stop>
  void drive(Stop stop, Deadline deadline, Wait how);
  template <class Stop>
  void drive_alone(Stop stop);
  bool step();
  bool take_submissions();
  void run(Task& task);
  bool advance_executions();
  void start(std::shared_ptr<Operation> operation);
  void finish(size_t index, std::optional<Error> error);
  void fail(Communicator& communicator, const Error& error, bool tell_peers);
  // Null if there is none.
  const Execution* under_way(const Communicator& communicator) const;
  void lost(Communicator& communicator, int peer, const Error& why);
  void on_failure(const Execution& execution);
  void look_at_links(bool idle);
  void on_abort(Link& link, const AbortNotice& notice);
  void on_mismatch(const Link* link, const Link::Mismatch& mismatch);
  // A message in device memory lost its path to or from that rank.
  void on_unreachable(int peer, Communicator& communicator);
  void on_failure(Link& link);
  void count_waits();
  // Rare events.
  void look_around();
  void look_at_deadlines();
  // Checks that awaited local peers without a connection are alive.
  void look_at_local_peers();
  void tell(Communicator& communicator, std::string_view reason, const Link* but);
  void sleep(Deadline deadline, bool background);

  // Any thread.
  bool unfinished() const { return running_ > 0 || owing_; }
  void leave(std::unique_lock<std::mutex> driver, bool waited_for);
  void hand_over(std::unique_lock<std::mutex> driver, bool waited_for);
  bool pass_on(std::unique_lock<std::mutex> driver);
  // The background thread starts these at once, see background_thread.h.
  static bool is_large(const std::shared_ptr<Operation>& operation) {
    return operation->bytes() > (64 << 10);
  }
  void drive_in_background();
  bool accept_connections();

  const Config& config_;
  Poller& poller_;
  Mesh& mesh_;
  PeerMemory peer_memory_;
  std::atomic<uint32_t> calls_{0};
  ThreadPool thread_pool_;

  std::mutex driver_;  // held by the driver; guards the members up to spare_
  std::vector<CallerMessage> caller_messages_;
  Executions active_;
  uint32_t steps_ = 0;
  bool gave_up_ = false;  // a communicator failed: later connections may need its failure report
  Deadline::Clock::time_point next_look_{};  // of look_at_local_peers()
  GroupTable groups_;
  MismatchDetector mismatches_;
  Waits waits_;
  Executions spare_;
  ScratchPool scratch_;
  SelfMessages self_;

  std::mutex inbox_mutex_;
  std::vector<Submission> inbox_;
  std::vector<Submission> taken_;        // the driver's half of a double buffer
  std::atomic<bool> inbox_full_{false};  // inbox_ is not empty
  std::atomic<bool> sleeping_{false};    // submitters must ring
  std::atomic<bool> background_drives_{false};
  std::atomic<size_t> running_{0};  // operations submitted or active, and aborts submitted
  // Data that peers may wait for has not left this process.
  std::atomic<bool> owing_{false};
  std::atomic<size_t> large_{0};      // large operations among running_
  std::atomic<bool> crowded_{false};  // some group has more ranks here than cores

  std::atomic<int> wanted_{0};   // threads in wait() or with_mesh()
  std::atomic<int> by_hand_{0};  // Turns objects
  std::mutex turn_mutex_;
  std::condition_variable turn_;  // an operation is done, or the driver left
  uint64_t turn_epoch_ = 0;       // number of times the driver left

  std::atomic<bool> stopping_{false};
  BackgroundThread background_;
  AcceptThread accept_thread_;
};

}  // namespace hccl_like

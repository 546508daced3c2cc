#pragma once
// A group of ranks and the calls it has made: gives every call its number, its algorithm and its
// links.
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/board/board.h"
#include "collectives/board/board_call.h"
#include "collectives/call/call_log.h"
#include "collectives/call/message_counters.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/operation.h"
#include "collectives/same_host/known_memory.h"
#include "collectives/schedule/schedule.h"
#include "collectives/selection/choose.h"
#include "collectives/selection/profile.h"
#include "transport/mesh/mesh.h"

namespace hccl_like {

// Calls may come from any thread; all ranks must make the same collective calls in the same order,
// where "order" is the order of prepare(). Held by shared_ptr because running operations keep it
// alive.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Identity {
    uint64_t id = 0;  // the same on all ranks, different from every other communicator's
    int rank = 0;
    std::string name = "world";  // for people
    std::chrono::milliseconds timeout{std::chrono::minutes(30)};
    std::vector<ProcessRecord> members;      // by rank
    std::vector<Link*> links;                // by rank, null for this process
    std::shared_ptr<Board> board;            // null if the ranks share no memory
    std::shared_ptr<const Profile> profile;  // what was measured; null if nothing was
  };
  static std::shared_ptr<Communicator> create(Engine& engine, Identity identity);
  ~Communicator();

  int rank() const { return identity_.rank; }
  int size() const { return static_cast<int>(identity_.members.size()); }
  uint64_t id() const { return identity_.id; }
  const std::string& name() const { return identity_.name; }
  const std::vector<ProcessRecord>& members() const { return identity_.members; }
  // By rank: how each is reached and why, or will be; own: empty.
  std::vector<std::string> routes() const;
  const Topology& topology() const { return topology_; }
  Engine& engine() const { return engine_; }

  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Algorithms for the calls prepared from now on, in place of those that the settings force. The
  // same on all ranks.
  void force(ForcedAlgorithms algorithms);

  // Takes a call in: checks it, gives it its number and plans it. Touches no buffer and no link, so
  // it may run long before launch() (in stream order, say). Throws an Exception on misuse, and if
  // the communicator has failed.
  std::shared_ptr<Operation> prepare(Call call);
  // A later lap of what two ranks exchange in a call of which `begun_by` made the first: a send to
  // or a receive from call.root, any source if that one is. `lap` is 1 or more, `whole` the bytes
  // of all laps between the two, which both must expect. To be launched after `begun_by`, or
  // together with it.
  std::shared_ptr<Operation> prepare_lap(std::shared_ptr<const Operation> begun_by, Call call,
                                         uint32_t lap, size_t whole);
  // Makes a call at once, in the caller's thread and without the engine, if it is one between ranks
  // of one host: over the board, direct, or a short message. `may_wait` waits a moment for ranks
  // that are not there yet. Throws as prepare() does.
  struct Tried {
    bool over = false;
    uint32_t sequence = 0;
    // The call has its number, but other ranks are missing: to be launched like what prepare()
    // gives, which is not to be called any more. Null if the call is not over and is left to
    // prepare().
    std::shared_ptr<Operation> rest;
  };
  Tried try_run(const Call& call, bool may_wait);
  // Starts a prepared operation. With `waited_for`, the caller is about to wait() and nobody else
  // need be woken.
  void launch(std::span<const std::shared_ptr<Operation>> operations, bool waited_for);
  // prepare + launch + wait; throws the operation's error. A call of one host is over, in the
  // common case, without the engine, and a small one without an allocation.
  void run(const Call& call);

  // The same for calls that may wait for each other, such as a send and a receive: all are launched
  // before one is waited for.
  void run(std::span<const Call> calls);
  // Makes a send or a receive of a short message between processes of one host at once, in the
  // caller's thread, without the engine's lists and without an allocation; `may_wait` waits a
  // moment for the peer. Null when it is over, else the operation that the call has become, to be
  // launched. For other calls it is prepare().
  std::shared_ptr<Operation> pass(const Call& call, bool may_wait);

  // Gives the communicator up: every running operation ends with an error of code kAborted, so does
  // every later one, and the other ranks are told. Any thread, does not block. The first reason
  // wins.
  void abort(std::string reason);
  // From now on what ends one of the two ends both. Of two communicators of the same ranks, tied by
  // all of them, before calls.
  static void tie(const std::shared_ptr<Communicator>& one,
                  const std::shared_ptr<Communicator>& other);
  // The first failure, if any.
  std::optional<Error> failure() const;
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }

  // The sub-communicator of `ranks` (in the new order), over the links that exist: no message is
  // exchanged. Every rank of this communicator calls split() with its own list the same number of
  // times; null if this rank is in none
  // (`ranks` empty).
  std::shared_ptr<Communicator> split(std::span<const int> ranks, std::string name);

  // Where the ranks of one host meet, if they do. The call's layouts are left to the caller.
  const std::shared_ptr<Board>& board() const { return identity_.board; }
  BoardCall board_call(const Call& call, const Plan& plan, uint32_t number) const;

  // Whether peers on this host read and write the call's memory where it lies, if it is shared. No
  // lock, some nanoseconds.
  bool uses_shared_memory(const Call& call) const;

  // Whether any other rank can be sent messages that lie in memory of a device
  // (Link::reaches_devices). No lock.
  bool reaches_devices() const;
  // Makes such memory ready for messages with every rank that can be reached so; false if it cannot
  // be. Takes the engine.
  bool prepare_memory(const std::byte* data, size_t bytes);
  // Before launch(): whether an operation may use such memory in place of what it was prepared
  // with, in the same chunks: if all it does is to move bytes in messages that can lie there. Then
  // the chunks are given that it copies within this rank; if it does use it, these copies are the
  // caller's.
  std::optional<std::vector<uint32_t>> may_use_device_memory(const Operation& operation,
                                                             const Layout& input,
                                                             const Layout& output) const;
  static void use_device_memory(Operation& operation, Layout input, Layout output);

  // How many collective calls were prepared so far.
  uint32_t sequence() const;

 private:
  friend class Engine;
  friend class Execution;
  Communicator(Engine& engine, Identity identity);

  void check(const Call& call) const;
  void check_own_part(const Call& call);
  uint64_t fingerprint(const Call& call, uint64_t detail) const;
  uint64_t meeting_fingerprint(const Call& call, const Plan& plan) const;
  CallPath path(const Call& call, Chunks chunks) const;
  void set_reduction(Plan& plan, const Call& call) const;
  Link* shared_memory_link(const Call& call) const;
  Link* short_message_link(const Call& call) const;
  void begin(Engine::CallerDriven& caller_driven, const Call& call, Link* link);
  std::shared_ptr<Operation> rest_of(CallerMessage& message);
  Tried try_large(const Call& call, BoardCall& on_board, const Plan& plan, bool may_wait);
  // With mutex_ held.
  const Choice& choose_messages(const Call& call, Plan& plan);
  const Choice& choice(Collective collective, size_t bytes, size_t element_bytes, bool uneven);
  std::string_view decision(Collective collective, uint64_t bytes, size_t element_bytes,
                            const ChooseOptions& options);
  const Program& program(const Algorithm& algorithm, int root);
  Plan message_plan(const Call& call);
  uint32_t message_number(const Call& call, uint32_t channel);

  // For the engine. remember() keeps the first error only and tells whether this was it; answered()
  // gives a rank whose next message on a channel has arrived unasked, or -1. `sequence` is the
  // place of whoever asks in the row of receives from any source, which are answered in order, and
  // becomes that message's number.
  bool remember(const Error& error);
  // Null if it is tied to none.
  std::shared_ptr<Communicator> tied() const;
  // What was called under a number, if it went through prepare() and was not long ago.
  std::optional<CallLog::Entry> called(uint32_t sequence) const;
  int rank_of(const Link& link) const;
  int answered(uint32_t channel, uint32_t* sequence);

  Engine& engine_;
  Identity identity_;
  Topology topology_;
  std::array<std::atomic<bool>, kCollectives> named_{};  // collectives in forced_
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> sequence_{0};  // of the next call
  KnownMemory known_memory_;
  SameHostResources same_host_;

  mutable std::mutex mutex_;  // guards what follows
  std::optional<Error> failure_;
  std::weak_ptr<Communicator> tied_;
  ForcedAlgorithms forced_;
  uint32_t splits_ = 0;
  // Mixed from the roots of all calls that went by messages. Two ranks that both take themselves
  // for the root expect no message of each other, so it is the next call that tells.
  uint64_t roots_ = 0;
  CallLog log_;
  MessageCounters sent_, received_;
  MessageCounters asked_, answered_;  // receives from any source
  std::unordered_map<uint64_t, Choice> choices_;
  std::unordered_map<uint64_t, const Algorithm*> decisions_;
  std::unordered_map<uint64_t, std::unique_ptr<Program>> programs_;
};

}  // namespace hccl_like

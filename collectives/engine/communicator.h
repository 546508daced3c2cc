#pragma once
// A group of ranks. Assigns a number, an algorithm and links to every call.
#include <array>
#include <atomic>
#include <chrono>
#include <map>
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
#include "collectives/engine/call_path.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/operation.h"
#include "collectives/same_host/known_memory.h"
#include "collectives/schedule/schedule.h"
#include "collectives/selection/choose.h"
#include "collectives/selection/profile.h"
#include "collectives/topology/group_topology.h"
#include "core/counters/counter_file.h"
#include "transport/mesh/mesh.h"

namespace hccl_like {

// Thread-safe. All ranks must make the same collective calls in the same order, which is the order
// of prepare(). Running operations keep the communicator alive.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Identity {
    uint64_t id = 0;  // equal on all ranks, unique among communicators
    int rank = 0;
    std::string name = "world";  // for messages to users
    std::vector<int> numbers;    // by rank, for messages to users; empty: the ranks
    std::chrono::milliseconds timeout{std::chrono::minutes(30)};
    std::vector<ProcessRecord> members;      // by rank
    std::vector<Link*> links;                // by rank, null for this process
    std::shared_ptr<Board> board;            // null if the ranks share no memory
    std::shared_ptr<const Profile> profile;  // measured times; null if none
  };
  static std::shared_ptr<Communicator> create(Engine& engine, Identity identity);
  ~Communicator();

  int rank() const { return identity_.rank; }
  int size() const { return static_cast<int>(identity_.members.size()); }
  uint64_t id() const { return identity_.id; }
  const std::string& name() const { return identity_.name; }
  // A rank as users know it: of a part(), in the whole group. Errors name ranks so.
  int number_of(int rank) const {
    return rank < 0 || identity_.numbers.empty() ? rank
                                                 : identity_.numbers[static_cast<size_t>(rank)];
  }
  const std::vector<ProcessRecord>& members() const { return identity_.members; }
  // By rank: the current or future route and the reason for it; empty for this rank.
  std::vector<std::string> routes() const;
  // Has the messages to each peer counted under its rank in this group, the largest so far.
  void count_messages(CounterFile& counters) const;
  const Topology& topology() const { return topology_; }
  DeviceMix device_mix() const { return device_mix_; }
  Engine& engine() const { return engine_; }

  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Settings and properties of the group that choose a call's path. No lock.
  CallPathOptions path_options(Collective collective) const;

  // Sums in rank order with one rounding, whatever the path of a call (docs/determinism.md). Before
  // any call, on all ranks. Config::deterministic does the same.
  void set_deterministic() { deterministic_ = true; }

  // Messages between hosts carry floats in fewer bytes (docs/compression.md). Before any call, on
  // all ranks. Throws kMisuse if the results shall be deterministic. Config::compression does the
  // same.
  void set_compression(Compression compression);
  bool compresses() const { return codec_.load(std::memory_order_relaxed) != nullptr; }

  // Overrides the configured algorithms for later prepare() calls. Must be equal on all ranks.
  void force(ForcedAlgorithms algorithms);
  // Adds a user's algorithm, which is used where it is forced. Before any call of its collective,
  // the same on all ranks. `algorithm` holds what it refers to.
  void add_own(std::shared_ptr<const Algorithm> algorithm);
  // The choices but those of users' algorithms.
  static ForcedAlgorithms without_own(ForcedAlgorithms forced);
  // The user's algorithm that is forced for the collective; null if there is none.
  const Algorithm* own(Collective collective) const;

  // Checks, numbers and plans a call. Accesses no buffer and no link, so it may run long before
  // launch() (in stream order, for example). Throws on misuse and if the communicator has failed.
  // `reserved`: a number of reserve().
  std::shared_ptr<Operation> prepare(Call call, std::optional<uint32_t> reserved = std::nullopt);
  // Takes numbers for collective calls of which it is not known yet whether all ranks make them;
  // returns the first. In the order of prepare(), with the same count on all ranks. Each number is
  // then prepared or skipped, alike on all ranks, after a collective call with a smaller number.
  uint32_t reserve(uint32_t count);
  void skip(uint32_t first, uint32_t count);
  // Prepares an exchange of records before `call`, which is compared between the ranks and named in
  // errors in its place: every rank gives `mine` and gets the records of all ranks, by rank, in
  // `all`. A collective call of its own. Of the layouts of `call`, only the sizes matter.
  std::shared_ptr<Operation> prepare_exchange(Call call, Region mine, Region all);
  // Prepares slice `slice`, 1 or more, of an exchange between two ranks; `begun_by` is the first
  // slice. `call` sends to or receives from call.root, any source if the first slice did. `whole`:
  // bytes of all slices, equal on both ranks. Launch it with or after `begun_by`.
  std::shared_ptr<Operation> prepare_slice(std::shared_ptr<const Operation> begun_by, Call call,
                                           uint32_t slice, size_t whole);
  // Makes a call between ranks of one host in the caller's thread, without the engine: over the
  // board, directly, or as a short message. `may_wait`: wait briefly for late ranks. Throws as
  // prepare() does.
  struct Tried {
    bool over = false;
    uint32_t sequence = 0;
    // The call has its number but other ranks are missing: launch this and do not call prepare().
    // Null and not `over`: the call is left to prepare().
    std::shared_ptr<Operation> rest;
  };
  Tried try_run(const Call& call, bool may_wait);
  // Starts prepared operations. `waited_for`: the caller will wait(), so no other thread is woken.
  void launch(std::span<const std::shared_ptr<Operation>> operations, bool waited_for);
  // prepare + launch + wait; throws the operation's error. A call of one host usually bypasses the
  // engine, and a small one does not allocate.
  void run(const Call& call);

  // The same for calls that may wait for each other, such as a send and a receive: launches all
  // first.
  void run(std::span<const Call> calls);
  // Makes a short send or receive between local peers in the caller's thread, without the engine's
  // queues or an allocation. `may_wait`: wait briefly for the peer. Null when complete, else the
  // operation to launch. Other calls go to prepare().
  std::shared_ptr<Operation> pass(const Call& call, bool may_wait);

  // Any thread, does not block. Ends all running and later operations with kAborted and sends a
  // failure report to the other ranks. The first reason wins.
  void abort(std::string reason);
  // A failure of one of the two then ends both. All ranks must tie them, before any call; both must
  // have the same ranks.
  static void tie(const std::shared_ptr<Communicator>& one,
                  const std::shared_ptr<Communicator>& other);
  std::optional<Error> failure() const;
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }

  // The sub-communicator of `ranks`, in the new order, over the existing links; sends no message.
  // Every rank must call split() equally often, with its own list. Null if `ranks` is empty.
  std::shared_ptr<Communicator> split(std::span<const int> ranks, std::string name);

  // The same for ranks that make parts of this group's calls: it has this group's name, and a
  // failure of one fails the other.
  std::shared_ptr<Communicator> part(std::span<const int> ranks);

  // Null if the ranks share no memory. The caller adds the layouts to board_call().
  const std::shared_ptr<Board>& board() const { return identity_.board; }
  BoardCall board_call(const Call& call, const Plan& plan, uint32_t number) const;

  // Whether local peers access the call's memory in place, if it is shared. No lock.
  bool uses_shared_memory(const Call& call) const;

  // Whether any peer can receive messages in device memory (Link::reaches_devices). No lock.
  bool reaches_devices() const;
  // Registers device memory for messages with all such peers; false if that fails. Takes the
  // engine.
  bool prepare_memory(const std::byte* data, size_t bytes);
  // Before launch(): whether an operation may use these layouts of device memory, with the same
  // chunks: it must only move bytes in messages that can be there. Returns the chunks to copy
  // within this rank, which the caller copies if it calls use_device_memory().
  std::optional<std::vector<uint32_t>> may_use_device_memory(const Operation& operation,
                                                             const Layout& input,
                                                             const Layout& output) const;
  static void use_device_memory(Operation& operation, Layout input, Layout output);

  // Number of collective calls prepared so far.
  uint32_t sequence() const;
  // The messages prepared so far, by peer. A receive from any source counts once it is answered.
  struct Messages {
    std::map<int, uint64_t> sent, received;
  };
  Messages messages() const;

  // For the engine.
  // By rank, null for this process.
  const std::vector<Link*>& links() const { return identity_.links; }
  int rank_of(const Link& link) const;  // -1 if none
  // Keeps only the first error; returns whether this is it.
  bool remember(const Error& error);
  // The communicators that a failure of this one ends, and whether their other ranks must be told.
  struct Relative {
    std::shared_ptr<Communicator> communicator;
    bool tell_peers = false;
  };
  std::vector<Relative> relatives() const;
  // A recent call that went through prepare(), by its number.
  std::optional<CallLog::Entry> called(uint32_t sequence) const;
  // A rank whose next message on the channel arrived without a receive, or -1. `sequence`: in, the
  // position among receives from any source, which are answered in order; out, the number of that
  // message.
  int answered(const SelfMessages& self, uint32_t channel, uint32_t* sequence);

 private:
  Communicator(Engine& engine, Identity identity);
  std::shared_ptr<Communicator> split(std::span<const int> ranks, Identity child);

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
  void find_named();
  const Choice& choose_messages(const Call& call, Plan& plan);
  const Choice& choice(const Call& call, size_t bytes, bool uneven, bool compressed);
  std::string_view decision(Collective collective, uint64_t bytes, size_t element_bytes,
                            const ChooseOptions& options);
  const Program& program(const Algorithm& algorithm, int root);
  Plan message_plan(const Call& call);
  uint32_t message_number(const Call& call, uint32_t channel);

  Engine& engine_;
  Identity identity_;
  Topology topology_;
  DeviceMix device_mix_ = DeviceMix::kAlike;
  std::array<std::atomic<bool>, kCollectives> named_{};  // collectives in forced_
  // By collective: the user's algorithm that is forced, or null.
  std::array<std::atomic<const Algorithm*>, kCollectives> own_{};
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> deterministic_;
  std::atomic<const Codec*> codec_{nullptr};  // null: nothing is compressed
  std::atomic<uint32_t> sequence_{0};         // of the next call
  KnownMemory known_memory_;
  SameHostResources same_host_;
  bool maps_memory_ = false;

  mutable std::mutex mutex_;  // guards all members below
  std::optional<Error> failure_;
  std::weak_ptr<Communicator> tied_, whole_;
  std::vector<std::weak_ptr<Communicator>> parts_;
  ForcedAlgorithms forced_;
  std::vector<std::shared_ptr<const Algorithm>> all_own_;
  uint32_t splits_ = 0;
  // Mix of the roots of all calls by messages. Two ranks that both act as root exchange no message,
  // so only the next call's fingerprint reveals the mismatch.
  uint64_t roots_ = 0;
  CallLog log_;
  MessageCounters sent_, received_;
  MessageCounters asked_, answered_;  // receives from any source
  std::unordered_map<uint64_t, Choice> choices_;
  std::unordered_map<uint64_t, const Algorithm*> decisions_;
  std::unordered_map<uint64_t, std::unique_ptr<Program>> programs_;
};

}  // namespace hccl_like

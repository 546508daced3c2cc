#pragma once
// Issues the calls of one group: on the host or in stream order, one by one or as a block.
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "process_group/calls/calls.h"
#include "process_group/calls/slices.h"
#include "process_group/diagnosis/untold.h"
#include "process_group/graphs/captured_calls.h"
#include "process_group/issue/communicators.h"
#include "process_group/issue/diagnosis.h"
#include "process_group/issue/session.h"
#include "process_group/issue/stagings.h"
#include "process_group/issue/work.h"

namespace hccl_like {

// Any thread. Calls are numbered in the order in which they enter issue(). All ranks must use the
// same order, separately for host tensors and device tensors (communicators.h).
// On a device that keeps stream order (DeviceAccess):
//   synchronous call   the caller's current stream;
//   asynchronous call  one stream of the group per device, which overlaps with the caller's work;
//   send and receive   begin on one stream, end on one for each peer and direction: a message that
//                      waits for its peer delays no other message.
//   all_reduce of little data   one kernel on such a stream, if the plugin has it (small_calls.h);
//   a stream that captures a graph   the call becomes part of the graph (captured_calls.h).
// On other devices the caller's thread waits for its current stream and makes the call.
// Where calls of the device's runtime await idle streams, large calls take this way, too, but wait
// for no stream when they are issued (goes_in_stream()).
// Large calls on memory that host code cannot address go slice by slice (stagings.h). Such
// collectives run one after the other, whatever their streams.
class Issuer {
 public:
  // `diagnosis` outlives this object and observes every call.
  Issuer(std::shared_ptr<Session> session, std::shared_ptr<Communicator> communicator,
         Diagnosis& diagnosis);
  // close() must have been called.
  ~Issuer();

  // Throws torch errors. Returns null for a synchronous call inside a block, and for a synchronous
  // host call, which is over by then, unless a profiler or the Issue wants a Work.
  c10::intrusive_ptr<Work> issue(Issue issue);

  // issue() only collects after begin_block(). end_block() issues all and returns their common
  // Work.
  void begin_block();
  c10::intrusive_ptr<Work> end_block();
  bool in_block() const;

  // The accelerator of the most recent call on one, if any.
  std::optional<c10::Device> accelerator() const;

  // Throws kMisuse as a call does if the group is closed or suspended, or in a forked child.
  std::shared_ptr<Session> open_session() const { return group().session; }
  // Null after close().
  std::shared_ptr<const Communicators> communicators() const;
  std::shared_ptr<Session> session() const;

  // Releases the resources of finished calls and notes their failures (untold.h).
  void reap();
  // The program itself gives the group up, so its calls that fail are no news (untold.h).
  void note_aborted() const;
  // Waits for all calls and releases their resources. False after `deadline`.
  bool settle(Deadline deadline = Deadline::never());
  struct Held {
    uint64_t calls = 0;
    uint64_t temporary_bytes = 0;
  };
  Held held() const;

  // Waits for all calls and releases the session; later calls are refused. With `timeout`, aborts
  // the group if calls still run after that time, and waits once more. Idempotent.
  void close(std::optional<std::chrono::milliseconds> timeout);

  // --- by the Suspension (suspension.h), one thread at a time ---
  // Refuses calls from now on. Throws if the group is not in a state that can be restored.
  void suspend();
  // Accepts calls again: before leave(), or after reopen().
  void undo_suspend();
  bool suspended() const;
  // After settle(): releases what the next large call makes again.
  void release_staging();
  // As close(), but the group can be opened again.
  void leave(std::optional<std::chrono::milliseconds> timeout);
  void reopen(std::shared_ptr<Session> session, std::shared_ptr<Communicator> communicator);
  // ---

 private:
  struct Streams {
    std::optional<c10::Stream> collectives;
    std::optional<c10::Stream> messages;
    std::map<std::pair<int, Collective>, c10::Stream> per_peer;
  };
  // The streams on which a call begins and ends.
  struct Route {
    c10::Stream begin;
    c10::Stream end;
  };
  struct Block {
    std::optional<Issue> issue;
    c10::intrusive_ptr<Work> work;
  };
  struct Group {
    std::shared_ptr<Session> session;
    std::shared_ptr<const Communicators> communicators;
    bool unfinished = false;  // calls wait for reap()
    bool in_block = false;

    // All calls of an issue are on one device.
    const std::shared_ptr<Communicator>& communicator_of(const Issue& issue) const;
  };

  Group group() const;
  Group group_locked() const;
  bool collects(Issue& issue, const Group& group, c10::intrusive_ptr<Work>& work);
  c10::intrusive_ptr<Work> start(Issue& issue, const Group& group, c10::intrusive_ptr<Work> work);
  c10::intrusive_ptr<Work> start_unnoted(Issue& issue, const Group& group,
                                         c10::intrusive_ptr<Work> work);
  void note_told(const Error& error) const;
  void compare_results(Issue& issue, const Group& group) const;
  static void watch_result(const Issue& issue, Pending& pending);
  static void take_in_time(const Issue& issue, const Group& group,
                           const std::shared_ptr<Pending>& pending);
  c10::intrusive_ptr<Work> work_for(const Issue& issue, const Group& group,
                                    const DeviceAccess& access, c10::intrusive_ptr<Work> work);
  // issuer_host.cc
  c10::intrusive_ptr<Work> on_host(const Issue& issue, const Group& group,
                                   const DeviceAccess& access, c10::intrusive_ptr<Work> work);
  std::shared_ptr<Pending> launch_on_host(const Issue& issue, const Group& group,
                                          const DeviceAccess& access, Call* plain,
                                          std::shared_ptr<Operation> begun, Work* work);
  // issuer_staged.cc
  // The slices of each request; empty if no request is cut.
  using Cuts = c10::SmallVector<std::optional<Slices>, 1>;
  static Cuts cuts_of(const Issue& issue, const Group& group, const DeviceAccess& access);
  static bool goes_in_stream(const Issue& issue, const Group& group, const DeviceAccess& access);
  std::shared_ptr<Pending> launch_staged(const Issue& issue, const Group& group,
                                         const DeviceAccess& access, const Cuts& cuts, Work* work);
  using StagedCalls = c10::SmallVector<std::pair<Staging*, std::shared_ptr<Staging::Call>>, 1>;
  static StagedCalls prepare_staged(const Issue& issue, const Group& group,
                                    const DeviceAccess& access, const Cuts& cuts,
                                    Stagings& stagings, bool hold,
                                    const std::shared_ptr<Pending>& pending);
  static void prepare_refused(Call call, const Slices& slices, const DeviceAccess& access,
                              const std::shared_ptr<Communicator>& communicator, Pending& pending);
  static void prepare_whole(Call call, const std::optional<Slices>& slices,
                            const std::shared_ptr<Communicator>& communicator, Pending& pending,
                            const StreamMessage* refused = nullptr);
  Stagings& staging(const Group& group, const DeviceAccess& access);

  // issuer_stream.cc
  void in_stream(Issue& issue, const Group& group, const DeviceAccess& access, Work& work);
  static bool may_be_small(const Issue& issue, const Group& group, const DeviceAccess& access);
  bool in_kernel(Issue& issue, const Group& group, const DeviceAccess& access, Work& work);
  void in_graph(const Issue& issue, const Group& group, const DeviceAccess& access, Work& work);
  void prepare(const Issue& issue, const Group& group, Buffers& buffers, Pending& pending,
               bool hold) const;
  Route route(const Issue& issue, const Group& group, const DeviceAccess& access);
  void collect(Issue& issue, const Group& group, c10::intrusive_ptr<Work>& work);
  static std::chrono::milliseconds call_timeout(const Issue& issue);
  static bool drain(const std::list<std::shared_ptr<Pending>>& pending, Deadline deadline);

  Diagnosis& diagnosis_;
  const uint64_t number_ = number_of_new_group();
  mutable std::mutex mutex_;  // held while a call is numbered and queued: one order for both
  std::shared_ptr<Session> session_;
  std::shared_ptr<const Communicators> communicators_;
  std::list<std::shared_ptr<Pending>> pending_;  // asynchronous calls that may not be over
  std::map<c10::DeviceIndex, Streams> streams_;
  std::map<c10::DeviceIndex, std::shared_ptr<Stagings>> stagings_;
  std::map<c10::DeviceIndex, std::shared_ptr<CapturedCalls>> captured_;
  std::mutex
      staging_mutex_;  // held while a staged call is prepared and launched; taken before mutex_
  bool suspended_ = false;
  std::optional<Block> block_;
  std::optional<c10::Device> accelerator_;
};

}  // namespace hccl_like

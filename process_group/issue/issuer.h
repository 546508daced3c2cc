#pragma once
// Issues calls on one group: on the host or in the order of a device's streams, one by one or in a
// coalescing block.
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "process_group/calls/calls.h"
#include "process_group/calls/laps.h"
#include "process_group/diagnosis/untold.h"
#include "process_group/issue/communicators.h"
#include "process_group/issue/diagnosis.h"
#include "process_group/issue/session.h"
#include "process_group/issue/staging_lanes.h"
#include "process_group/issue/work.h"

namespace hccl_like {

// Any thread. The calls of a group are numbered in the order in which issue() gets to them, which
// must be the same on all ranks, for host tensors and for device tensors apart (communicators.h).
//
// On a device that keeps stream order (DeviceAccess):
//   a synchronous call    runs on the caller's current stream;
//   an asynchronous one   runs on a stream that the group keeps for the device, so calls are in
//   order with each other and
//                         overlap with the caller's work;
//   send and receive      start on one stream and are waited for on another, one for each peer and
//   direction: a message
//                         that waits for its other end holds up no other message.
// On all others the call waits, on the host, for the caller's current stream, and runs from there:
// from the caller's thread. On both a call that is large, and whose memory host code cannot
// address, goes lap by lap (staging_lanes.h). Such calls go one after the other, whatever their
// streams.
class Issuer {
 public:
  // `diagnosis`, which outlives this, is told of every call.
  Issuer(std::shared_ptr<Session> session, std::shared_ptr<Communicator> communicator,
         Diagnosis& diagnosis);
  // close() must have been called.
  ~Issuer();

  // Throws what torch throws. A synchronous call on the host is over when this returns, and needs
  // no Work: null, unless a profiler or the Issue wants one. Null also for a synchronous call
  // inside a block.
  c10::intrusive_ptr<Work> issue(Issue issue);

  // Between the two, issue() only collects; end_block() issues everything at once and returns the
  // Work of it all.
  void begin_block();
  c10::intrusive_ptr<Work> end_block();
  bool in_block() const;

  // The accelerator that the last call on one was about, if there was any.
  std::optional<c10::Device> accelerator() const;

  // Null after close().
  std::shared_ptr<const Communicators> communicators() const;
  std::shared_ptr<Session> session() const;

  // Lets go of what finished calls held, and notes those that failed (untold.h).
  void reap();
  // Waits until all calls are over, and lets go of what they held.
  void settle();
  // How many calls may not be over, and the bytes of the temporaries that they use.
  struct Held {
    uint64_t calls = 0;
    uint64_t temporary_bytes = 0;
  };
  Held held() const;

  // How the last of a group goes. Waits until all calls are over, and lets go of the session; later
  // calls are refused. With a backoff, calls that are not over by then are given up. Idempotent.
  void close(std::optional<std::chrono::milliseconds> backoff);

 private:
  // The streams of the group on one device, taken when first needed.
  struct Streams {
    std::optional<c10::Stream> collectives;
    std::optional<c10::Stream> messages;
    std::map<std::pair<int, Collective>, c10::Stream> lanes;
  };
  // Where a call begins and where it is over.
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

    // All calls of an issue are on one device.
    const std::shared_ptr<Communicator>& communicator_of(const Issue& issue) const;
  };

  Group group() const;
  Group group_locked() const;
  std::optional<Group> admit(Issue& issue, c10::intrusive_ptr<Work>& work);
  c10::intrusive_ptr<Work> start(Issue& issue, const Group& group, c10::intrusive_ptr<Work> work);
  c10::intrusive_ptr<Work> start_unnoted(Issue& issue, const Group& group,
                                         c10::intrusive_ptr<Work> work);
  void note_told(const Error& error) const;
  c10::intrusive_ptr<Work> work_for(const Issue& issue, const Group& group,
                                    const DeviceAccess& access, c10::intrusive_ptr<Work> work);
  // issuer_host.cc
  c10::intrusive_ptr<Work> on_host(const Issue& issue, const Group& group,
                                   const DeviceAccess& access, c10::intrusive_ptr<Work> work);
  std::shared_ptr<Pending> launch_on_host(const Issue& issue, const Group& group,
                                          const DeviceAccess& access, Call* plain,
                                          std::shared_ptr<Operation> begun, Work* work);
  // issuer_staged.cc
  // How each request is cut; empty if none is.
  using Cuts = c10::SmallVector<std::optional<Laps>, 1>;
  static Cuts cuts_of(const Issue& issue, const Group& group, const DeviceAccess& access);
  std::shared_ptr<Pending> launch_staged(const Issue& issue, const Group& group,
                                         const DeviceAccess& access, const Cuts& cuts, Work* work);
  using StagedCalls = c10::SmallVector<std::pair<Staging*, std::shared_ptr<Staging::Call>>, 1>;
  static StagedCalls prepare_staged(const Issue& issue, const Group& group,
                                    const DeviceAccess& access, const Cuts& cuts,
                                    StagingLanes& lanes, bool hold,
                                    const std::shared_ptr<Pending>& pending);
  static void prepare_whole(Call call, const std::optional<Laps>& laps,
                            const std::shared_ptr<Communicator>& communicator, Pending& pending);
  StagingLanes& staging(const Group& group, const DeviceAccess& access);

  void in_stream(Issue& issue, const Group& group, const DeviceAccess& access, Work& work);
  void prepare(const Issue& issue, const Group& group, Buffers& buffers, Pending& pending,
               bool hold) const;
  Route route(const Issue& issue, const Group& group, const DeviceAccess& access);
  void collect(Issue& issue, c10::intrusive_ptr<Work>& work);
  static std::chrono::milliseconds call_timeout(const Issue& issue);
  static bool drain(const std::list<std::shared_ptr<Pending>>& pending, Deadline deadline);

  Diagnosis& diagnosis_;
  const uint64_t number_ = number_of_new_group();
  mutable std::mutex mutex_;  // held while a call is numbered and queued, so that streams see the
                              // order of the numbers
  std::shared_ptr<Session> session_;
  std::shared_ptr<const Communicators> communicators_;
  std::list<std::shared_ptr<Pending>> pending_;  // asynchronous calls that may not be over
  std::map<c10::DeviceIndex, Streams> streams_;
  std::map<c10::DeviceIndex, std::shared_ptr<StagingLanes>> stagings_;
  std::mutex
      staging_mutex_;  // held while a staged call is prepared and launched; taken before mutex_
  std::optional<Block> block_;
  std::optional<c10::Device> accelerator_;
};

}  // namespace hccl_like

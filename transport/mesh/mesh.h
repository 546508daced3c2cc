#pragma once
// All links of this process: finds peers through a Store, connects over the best transport that
// both ends accept, and keeps one Link per peer process for all groups.
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "core/counters/counter_file.h"
#include "core/settings/config.h"
#include "transport/link/link.h"
#include "transport/mesh/counters.h"
#include "transport/mesh/transports.h"
#include "transport/network/process_record.h"
#include "transport/network/store.h"
#include "transport/same_host/commons.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// The members of a new group, as agreed on through the store.
struct Roster {
  uint64_t communicator = 0;           // random, drawn by rank 0, never used before
  std::vector<ProcessRecord> members;  // by rank
};

class Mesh {
 public:
  // `modules`: transports found in addition to those of the settings.
  Mesh(const Config& config, Poller& poller, const ModulePaths& modules = {});
  // Sends a goodbye on every link, waits at most one second for buffered bytes, then closes
  // everything. In a forked child it releases nothing.
  ~Mesh();

  const ProcessRecord& self() const;
  // Whether a group of this size meets by a tree of ranks.
  bool meets_by_tree(int size) const;
  // The memory shared with local peers; null without shared memory. Any thread.
  const std::shared_ptr<Commons>& commons() const;

  // Publishes self() and reads the records of all ranks. Blocks on the store and touches no link,
  // so it may run beside the engine. Ignores stale keys of dead processes, even of half a round
  // (exchange.h). `area`: the part of this process's Commons that belongs to the group, if any.
  // `settings`: must be equal on all ranks; otherwise all ranks throw and name two that differ.
  // `scope`: identifies the group within the job, equal on all ranks; see exchange_records().
  // `device`: ProcessRecord::device of this rank. On timeout throws an Exception that names the
  // missing ranks. A group that meets by a tree of ranks needs a driver meanwhile, which accepts
  // connections.
  Roster exchange(Store& store, int rank, int size, Deadline deadline,
                  std::optional<uint32_t> area = std::nullopt,
                  const std::map<std::string, std::string>& settings = {},
                  std::string_view scope = {}, const std::string& device = {}) const;

  // Connects to every member without a healthy link. Returns the links by rank, null for this
  // process. Only one thread at a time, in addition to the links' own thread rule. Calls `idle`
  // (may be empty) while it waits, so that other communicators progress. Throws an Exception that
  // names the unreachable ranks and the attempts: at the deadline or, if two ranks have no common
  // transport, at once. Links connected before the error stay.
  std::vector<Link*> connect(const std::vector<ProcessRecord>& members, int rank, Deadline deadline,
                             const std::function<void()>& idle);

  // The same without connecting: a link gets its wire at the first post or request from either end,
  // while the driver calls poll(). Two kinds of peers are connected at once, because the group
  // needs more than their records: peers over transports other than shm and tcp, and local peers
  // whose memory is accessible only through a connection. A link that cannot connect within the
  // connect timeout fails.
  std::vector<Link*> introduce(const std::vector<ProcessRecord>& members, int rank,
                               Deadline deadline, const std::function<void()>& idle);

  // The existing links to the members, by rank; null for all others and for this process.
  std::vector<Link*> links_to(const std::vector<ProcessRecord>& members) const;

  // What ranks of other hosts that ask are told. Call before the first group is made.
  void show(std::shared_ptr<const CounterFile> counters);
  // See transport/mesh/counters.h. Any thread.
  std::vector<RankCounters> counters_of(const std::vector<RankRecord>& ranks, Deadline deadline,
                                        const std::atomic<bool>& stop) const;

  // Connects requested links and accepts connections of peers. The driver calls it after the
  // poller's poll() or sleep(). Makes no system call unless the poller reported an event.
  void poll();

  // Whether poll() should be called often.
  bool is_restless() const;
  // The next time at which poll() must run without an event.
  Deadline next_timer() const;
  // Whether any introduced peer is not connected.
  bool has_absent() const;
  // Whether peers may connect later: absent ones, and those whose connection breaks.
  bool may_accept() const;
  // Readable while a peer connects, for the accept thread. Constant. Any thread.
  int listener_fd() const;
  // Tells local peers that the driver is about to sleep, or has woken.
  void set_asleep(bool asleep);

  // Every link, including failed ones. Links neither move nor end while the mesh lives. poll() and
  // connect() may add links, so do not call them inside a loop over this list.
  const std::vector<std::unique_ptr<Link>>& links() const;
  // Whether a connected link has data that leaves this process only with a driver.
  bool owes() const;
  // Sends that data as far as possible; true when no driver is needed any more.
  bool hand_on() const;
  // The route to a peer and the reason, for logs: "shm (same host)", "tcp 10.0.0.5:41234 via eth0
  // (other host)", "tcp (when it is needed)". Any thread.
  std::string describe(const Link& link) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hccl_like

#pragma once
// All of this process's links: finds the peers through a Store, connects over the best transport
// that both ends accept, and keeps one Link per peer process however many groups share it.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "core/settings/config.h"
#include "transport/link/link.h"
#include "transport/mesh/transports.h"
#include "transport/network/process_record.h"
#include "transport/network/store.h"
#include "transport/same_host/commons.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// What all ranks of a new group agreed on through the store.
struct Roster {
  uint64_t communicator = 0;           // random, drawn by rank 0, never used before
  std::vector<ProcessRecord> members;  // by rank
};

class Mesh {
 public:
  // `modules`: transports that were found beside those of the settings.
  Mesh(const Config& config, Poller& poller, const ModulePaths& modules = {});
  // Says goodbye on every link, waits at most a second for what is still in the buffers, closes
  // everything. In a forked child of the process that made it, it leaves everything alone.
  ~Mesh();

  const ProcessRecord& self() const;
  // What this process shows to its peers on this host; null without shared memory. Any thread.
  const std::shared_ptr<Commons>& commons() const;

  // Publishes self() and reads everybody else's. Blocks on the store, touches no link: may run
  // beside the engine. Safe against stale keys: what processes that are gone left in the store, be
  // it half of an earlier round, is told apart (exchange.h). On time-out it throws an Exception
  // that names the ranks that never came. `area`: the part of this process's Commons that it keeps
  // for the group, if any. `settings`: what must be alike on all ranks; where it is not, all of
  // them throw and name two that differ. `scope`: what tells the group from others of the job, the
  // same on all ranks; see exchange_records().
  Roster exchange(Store& store, int rank, int size, Deadline deadline,
                  std::optional<uint32_t> area = std::nullopt,
                  const std::map<std::string, std::string>& settings = {},
                  std::string_view scope = {}) const;

  // Connects to every member that has no healthy link yet, and returns the links by rank (null for
  // this process itself). Only one thread at a time, together with the links' own rule; calls
  // `idle` (which may be empty) while it waits so that other communicators go on. Throws an
  // Exception naming the ranks that could not be reached and what was tried, at the deadline or, if
  // two ranks have no transport in common, at once. What was connected by then stays.
  std::vector<Link*> connect(const std::vector<ProcessRecord>& members, int rank, Deadline deadline,
                             const std::function<void()>& idle);

  // The same without connecting: a link gets its wire once somebody posts to it or wants it, from
  // either end, while whoever drives calls poll(). Only peers of which the group must know more
  // than their records tell are connected at once: those of transports beside shm and tcp, and
  // those of this host whose memory can be seen only through a connection. A link that finds no way
  // in the connect time-out fails.
  std::vector<Link*> introduce(const std::vector<ProcessRecord>& members, int rank,
                               Deadline deadline, const std::function<void()>& idle);

  // The links that there are to the members, by rank; null for others and for this process itself.
  std::vector<Link*> links_to(const std::vector<ProcessRecord>& members) const;

  // Connects links that are wanted, and accepts peers that connect on their own account. Called by
  // whoever drives, after the poller's poll() or sleep(); without a system call unless the poller
  // reported something.
  void poll();

  // Something is under way for which poll() should be called often.
  bool is_restless() const;
  // When poll() has something to do although nothing was reported.
  Deadline next_timer() const;
  // Whether peers are introduced that are not connected.
  bool has_absent() const;
  // Readable while they knock, for whoever looks after them while nobody drives; the same
  // descriptor all the time. Any thread.
  int door() const;
  // Tells this host's processes that whoever drives is about to sleep, or has woken.
  void set_asleep(bool asleep);

  // Every link, failed ones included, for the driver's loop. Links never move or go away while the
  // mesh lives, but poll() and connect() may add some, so neither may be called inside a loop over
  // this list.
  const std::vector<std::unique_ptr<Link>>& links() const;
  // Whether something that was handed to a connected link leaves this process only if somebody
  // drives.
  bool owes() const;
  // Hands it on as far as it goes; true when nobody need drive for it any more. What a peer's
  // kernel has not confirmed yet is on its way without us.
  bool hand_on() const;
  // How a peer is reached and why, for logs: "shm (same host)", "tcp 10.0.0.5:41234 via eth0 (other
  // host)", "tcp (when it is needed)". Any thread.
  std::string describe(const Link& link) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hccl_like

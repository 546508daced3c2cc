#pragma once
// The state of a Mesh; internal to the mesh's files.
#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transport/bootstrap/acceptor.h"
#include "transport/bootstrap/dialer.h"
#include "transport/mesh/early_peers.h"
#include "transport/mesh/mesh.h"
#include "transport/mesh/roster_tree.h"
#include "transport/same_host/bell.h"
#include "transport/same_host/local_peer.h"
#include "transport/shm/handshake.h"

namespace hccl_like {

struct Mesh::State {
  struct Known {
    Link* link;
    std::string route;
    std::string reason;
  };
  // A peer connected over the UNIX socket whose shared memory is being set up.
  struct Upgrading {
    Upgrading(std::string id, Fd socket, const LocalEnd& local, Poller& poller)
        : peer_id(std::move(id)),
          handshake(std::move(socket), ShmHandshake::Side::kAcceptor, local.shm_ring_bytes, poller,
                    local.commons.get()) {}
    std::string peer_id;
    ShmHandshake handshake;
  };
  // A peer of some group, and the ranks there for messages: its own and this process's.
  struct Member {
    ProcessRecord record;
    int rank, own_rank;
  };
  // An introduced peer, connected on demand. Either end may start.
  struct Absent {
    const Member* member;
    Link* link;
    bool awaited = false;  // the waiting caller has its own deadline
    std::unique_ptr<Dialer> dialer{};
    Deadline::Clock::time_point since{};
  };
  // The connections of a tcp wire. The wire and its link live as long as the State.
  struct Railing {
    std::string id;  // the peer
    Link* link;
    Rails rails;
    std::string route{};    // as Known has it
    uint64_t replaced = 0;  // as the link has counted
    size_t down = 0;
    bool is_over() const { return link->failure() != nullptr || rails.gone(); }
  };
  // A wire that has a lifeline or is to have one. It and its link live as long as the State.
  struct Lifeline {
    std::string id;  // the peer
    Link* link;
    WatchedWire* wire;
    std::unique_ptr<LifelineDialer> dialer;  // null: there is a lifeline, or the peer makes it
    Deadline deadline;                       // of the missing one
    bool makes = dialer != nullptr;
    bool breaks = false;  // it is missed after there was one
  };
  // A member of a new group that is connected while the group is made.
  struct Missing;

  State(const Config& config, Poller& the_poller, const ModulePaths& modules);

  Known* find(const std::string& id) {
    const auto found = known.find(id);
    return found == known.end() ? nullptr : &found->second;
  }
  // Healthy: connected or connecting.
  bool has_healthy(const std::string& id) {
    const Known* one = find(id);
    return one != nullptr && one->link->failure() == nullptr;
  }
  bool has_connected(const std::string& id) {
    return has_healthy(id) && find(id)->link->connected();
  }
  bool is_upgrading(const std::string& id) const {
    return std::ranges::any_of(upgrading, [&](const auto& one) { return one.peer_id == id; });
  }

  // lazy.cc
  bool wanted(const std::string& id, size_t rail);
  bool held(const std::string& id, size_t rail);
  void add(const std::string& id, Dialed dialed);
  void take_in(Accepted accepted);
  void adopt(const std::string& id);
  void step_handshakes();
  void accept();
  void introduce(const ProcessRecord& record, int rank, int own_rank,
                 std::unique_ptr<LocalPeer> local_peer);
  void dial_wanted();
  void step_dialing();
  void give_up(Absent& peer, const std::string& why);
  void step() {
    accept();
    if (any_wanted) dial_wanted();
    if (!dialing.empty()) step_dialing();
    const bool broke = std::exchange(*local.tcp.broke, false);
    if (broke || rails_pending) step_rails();
    if (broke || lifelines_pending) step_lifelines();
  }
  const LinkOptions& options_of(std::string_view transport) const {
    return transport == "shm" ? local_options : options;
  }

  // rails.cc
  void add_rails(const std::string& id, Link* link, const Dialed& dialed);
  Railing* rails_of(const std::string& id);
  bool expects_rail(const std::string& id, size_t index);
  void abandon_broken(const std::string& id);
  void take_in_rail(Accepted accepted);
  void step_rails();
  bool rails_busy() const { return rails_pending || *local.tcp.broke; }

  // lifelines.cc
  Lifeline* takes_lifeline(const std::string& id);
  void take_in_lifeline(Accepted accepted);
  void step_lifelines();
  bool step_lifeline(Lifeline& one);
  bool makes_lifelines() const {
    return std::ranges::any_of(lifelines,
                               [](const Lifeline& one) { return one.dialer != nullptr; });
  }

  // connect.cc
  bool connects_when_needed(const ProcessRecord& peer) const;
  bool reached(Missing& peer);
  void join(std::list<Missing>& missing, size_t peers, int rank, Deadline deadline,
            const std::function<void()>& idle);
  std::string explain(const Missing& peer) const;
  std::string explain(const std::list<Missing>& missing) const;
  std::vector<Link*> links_of(const std::vector<ProcessRecord>& members);
  std::string describe(const Link& link) const;
  void set_known(const std::string& id, Known known);
  const Member& meet(const ProcessRecord& record, int rank, int own_rank);

  Poller& poller;
  const LinkOptions options, local_options;
  const uint32_t tree_ranks;  // groups from this size on meet by a tree; 0: none
  const std::chrono::milliseconds connect_timeout;
  const LocalEnd local;
  ProcessRecord self;
  const std::string advice;  // for errors about unreachable peers
  Acceptor acceptor;
  std::shared_ptr<const CounterFile> counters;  // null: not shown
  std::unique_ptr<Bell> bell;                   // null without a Commons
  EarlyPeers early;
  std::list<Upgrading> upgrading;
  std::map<std::string, Known> known;    // by process id
  mutable std::mutex known_mutex;        // for describe() on other threads
  std::map<std::string, Absent> absent;  // those in `known` without a wire
  std::list<Absent*> dialing;
  bool any_wanted = false;  // an absent peer is wanted
  size_t eager_dialing = 0;
  size_t guards = 0;
  std::vector<std::unique_ptr<Link>> links;
  std::map<std::string, Member> met;  // by process id
  std::list<Railing> railings;
  bool rails_pending = false;  // some have something to do
  std::list<Lifeline> lifelines;
  bool lifelines_pending = false;  // some are missing
  RosterInbox rosters;
};

}  // namespace hccl_like

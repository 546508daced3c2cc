// Introduces the members of a new group to each other, and connects them at once if requested.
#include <chrono>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/bootstrap/waiter.h"
#include "transport/mesh/report.h"
#include "transport/mesh/state.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNap{20};      // between two polls while nothing else runs
constexpr milliseconds kShortNap{1};  // while other communicators need progress
constexpr milliseconds kProgressEvery{10'000};
// Timeout for lifelines while the group is made: from then on a lifeline detects a peer's death. A
// network that blocks TCP costs this time once.
constexpr milliseconds kTimeoutWithLifelines{2'000};
constexpr size_t kDialersAtOnce = 128;
// Local peers whose exit notifies this process. All others are checked while they are waited for.
constexpr size_t kGuardsAGroup = 2;
constexpr size_t kMostGuards = 8;

std::string seconds_since(Deadline::Clock::time_point start) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::seconds>(Deadline::Clock::now() - start).count());
}

// If both ends connect at once, the higher id connects and the lower id listens.
bool connects_to(const ProcessRecord& self, const ProcessRecord& peer) { return self.id > peer.id; }

void check_members(const std::vector<ProcessRecord>& members, int rank, const ProcessRecord& self) {
  if (rank < 0 || static_cast<size_t>(rank) >= members.size() ||
      members[static_cast<size_t>(rank)].id != self.id)
    throw_misuse("rank " + std::to_string(rank) + " of the new group is not this process");
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto [first, fresh] = seen.try_emplace(members[i].id, i);
    if (!fresh)
      throw_misuse("ranks " + std::to_string(first->second) + " and " + std::to_string(i) +
                   " of the new group are the same process; each rank needs its own");
  }
}

void check_common_transport(int rank, const ProcessRecord& peer, const ProcessRecord& self,
                            const LocalEnd& local) {
  if (!common_transports(local, self, peer).empty()) return;
  throw Exception({ErrorCode::kUnsupported,
                   person(rank, peer) + " and this rank have no transport in common; " +
                       "HCCL_LIKE_TRANSPORTS is " + join(local.transports) +
                       " here, and shm joins processes of one host only" +
                       (local.setbacks.empty() ? "" : "; " + local.setbacks),
                   rank});
}

}  // namespace

struct Mesh::State::Missing {
  int rank;
  const ProcessRecord* record;
  bool we_connect;
  std::unique_ptr<Dialer>
      dialer{};  // null: the peer connects, or is introduced, or waits for its turn
  std::unique_ptr<Waiter> waiter{};  // null: this end connects
  bool may_leave = false;            // its exit before the connection is no error
};

std::string Mesh::State::explain(const Missing& peer) const {
  const std::string who = person(peer.rank, *peer.record) + ": ";
  if (peer.dialer) return who + peer.dialer->report();
  const auto found = absent.find(peer.record->id);
  if (found != absent.end() && found->second.dialer) return who + found->second.dialer->report();
  if (peer.we_connect) return who + "not tried yet, others came first";
  const std::string door = self.port == 0 ? ""
                                          : " at port " + std::to_string(self.port) + " of " +
                                                hccl_like::join(self.addresses);
  const bool failed = peer.waiter && !peer.waiter->report().empty();
  return who + "it connects to this rank, and has not come" + door +
         (failed ? "; " + peer.waiter->report() : "");
}

std::string Mesh::State::explain(const std::list<Missing>& missing) const {
  std::string text;
  for (const Missing& peer : missing) text += (text.empty() ? "" : " | ") + explain(peer);
  return text;
}

std::string Mesh::State::describe(const Link& link) const {
  std::lock_guard lock(known_mutex);
  for (const auto& [id, one] : known)
    if (one.link == &link) return one.route + (one.reason.empty() ? "" : " (" + one.reason + ")");
  return "a connection that was replaced";
}

bool Mesh::State::reached(Missing& peer) {
  const std::string& id = peer.record->id;
  if (absent.contains(id)) return false;
  adopt(id);
  if (const Known* one = find(id); one != nullptr && peer.may_leave) {
    const Error* failure = one->link->failure();
    if (failure != nullptr && failure->code == ErrorCode::kPeerLost) return true;
  }
  if (!find(id) || !has_connected(id)) {
    if (peer.we_connect && !peer.dialer && eager_dialing < kDialersAtOnce) {
      peer.dialer = std::make_unique<Dialer>(local, self, *peer.record, poller);
      ++eager_dialing;
    }
    const auto take = [&](Dialed dialed) { add(id, std::move(dialed)); };
    if (peer.dialer && peer.dialer->step()) take(peer.dialer->take());
    if (!peer.we_connect && !peer.waiter && !local.others.empty())
      peer.waiter = std::make_unique<Waiter>(local, self, *peer.record, poller);
    if (peer.waiter && !has_connected(id) && peer.waiter->step()) take(peer.waiter->take());
    if (!has_connected(id)) return false;
  }
  if (Known one = *find(id); one.reason.empty()) {
    one.reason = self.host == peer.record->host ? "same host" : "other host";
    set_known(id, std::move(one));
  }
  log_info([&] { return person(peer.rank, *peer.record) + ": " + describe(*find(id)->link); });
  if (peer.dialer) --eager_dialing;
  return true;
}

void Mesh::State::join(std::list<Missing>& missing, size_t peers, int rank, Deadline deadline,
                       const std::function<void()>& idle) {
  eager_dialing = 0;
  // A loadable transport may be unable to wake a sleeper.
  const milliseconds nap = links.empty() && local.others.empty() ? kNap : kShortNap;
  const auto start = Deadline::Clock::now();
  Deadline progress = Deadline::after(kProgressEvery);
  Deadline timeout = Deadline::never();
  for (;;) {
    poller.poll();
    step();
    const size_t before = missing.size();
    missing.remove_if([this](Missing& peer) { return reached(peer); });
    if (missing.empty()) {
      if (!lifelines_pending || timeout.expired() || deadline.expired()) return;
      timeout = earliest(timeout, Deadline::after(kTimeoutWithLifelines));
    } else if (deadline.expired()) {
      throw Exception({ErrorCode::kTimeout,
                       person(rank, self) + " timed out connecting to " +
                           std::to_string(missing.size()) + " of " + std::to_string(peers) +
                           " peers: " + explain(missing) + advice,
                       missing.front().rank});
    }
    if (progress.expired()) {
      log_info([&] {
        return "still connecting after " + seconds_since(start) + " s: " + explain(missing);
      });
      progress = Deadline::after(kProgressEvery);
    }
    if (idle) idle();
    if (missing.size() != before) continue;
    Deadline wake = earliest(earliest(deadline, acceptor.next_timer()), Deadline::after(nap));
    for (const Missing& peer : missing)
      if (peer.dialer) wake = earliest(wake, peer.dialer->next_timer());
    for (const Absent* one : dialing) wake = earliest(wake, one->dialer->next_timer());
    poller.sleep(wake);
  }
}

std::vector<Link*> Mesh::State::links_of(const std::vector<ProcessRecord>& members) {
  std::vector<Link*> found(members.size(), nullptr);
  for (size_t i = 0; i < members.size(); ++i)
    if (const auto* one = find(members[i].id)) found[i] = one->link;
  return found;
}

std::vector<Link*> Mesh::connect(const std::vector<ProcessRecord>& members, int rank,
                                 Deadline deadline, const std::function<void()>& idle) {
  State& state = *state_;
  check_members(members, rank, state.self);
  std::list<State::Missing> missing;
  for (size_t i = 1; i < members.size(); ++i) {
    // Each rank starts with its neighbors, so that no listener gets all ranks first.
    const size_t peer = (static_cast<size_t>(rank) + i) % members.size();
    const ProcessRecord& record = members[peer];
    if (state.has_connected(record.id)) continue;
    if (const auto found = state.absent.find(record.id); found != state.absent.end()) {
      found->second.awaited = true;
      found->second.link->want_wire();
    } else {
      check_common_transport(static_cast<int>(peer), record, state.self, state.local);
      state.meet(record, static_cast<int>(peer), rank);
    }
    missing.push_back({static_cast<int>(peer), &record, connects_to(state.self, record)});
  }
  state.join(missing, members.size() - 1, rank, deadline, idle);
  return state.links_of(members);
}

// All other transports connect both ends at the same time.
bool Mesh::State::connects_when_needed(const ProcessRecord& peer) const {
  const auto common = common_transports(local, self, peer);
  return std::ranges::all_of(common,
                             [](const std::string& one) { return one == "shm" || one == "tcp"; });
}

std::vector<Link*> Mesh::introduce(const std::vector<ProcessRecord>& members, int rank,
                                   Deadline deadline, const std::function<void()>& idle) {
  State& state = *state_;
  check_members(members, rank, state.self);
  std::list<State::Missing> missing;
  size_t guards = 0;
  for (size_t i = 1; i < members.size(); ++i) {
    const size_t peer = (static_cast<size_t>(rank) + i) % members.size();
    const ProcessRecord& record = members[peer];
    if (!state.has_healthy(record.id)) {
      check_common_transport(static_cast<int>(peer), record, state.self, state.local);
      const bool shows = state.bell && record.commons && state.self.host == record.host;
      State::Missing now{static_cast<int>(peer), &record, connects_to(state.self, record)};
      if (!state.connects_when_needed(record)) {
        state.meet(record, static_cast<int>(peer), rank);
        missing.push_back(std::move(now));
        continue;
      }
      auto local_peer =
          shows ? LocalPeer::meet(record, *state.local.commons, *state.bell, state.poller)
                : nullptr;
      const bool unseen = shows && !local_peer;
      state.introduce(record, static_cast<int>(peer), rank, std::move(local_peer));
      state.adopt(record.id);
      if (unseen) {
        // Its shared memory becomes accessible with its connection.
        state.find(record.id)->link->want_wire();
        now.may_leave = true;
        missing.push_back(std::move(now));
      }
    }
    LocalPeer* const local_peer = state.find(record.id)->link->local_peer();
    if (local_peer != nullptr && guards < kGuardsAGroup && state.guards < kMostGuards) {
      ++guards;
      state.guards += local_peer->guard();
    }
  }
  if (!missing.empty()) state.join(missing, members.size() - 1, rank, deadline, idle);
  return state.links_of(members);
}

}  // namespace hccl_like

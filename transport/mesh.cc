#include "transport/mesh.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <list>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "transport/address.h"
#include "transport/bootstrap_acceptor.h"
#include "transport/bootstrap_dialer.h"
#include "transport/bootstrap_host.h"
#include "transport/bootstrap_random.h"
#include "transport/bootstrap_waiter.h"
#include "transport/listener.h"
#include "transport/mesh_exchange.h"
#include "transport/mesh_report.h"
#include "transport/shm/handshake.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFarewell{1000};
constexpr milliseconds kNap{20};      // between two looks while nothing else is going on
constexpr milliseconds kShortNap{1};  // while other communicators need their turn
constexpr milliseconds kProgressEvery{10'000};
constexpr size_t kDialersAtOnce = 128;

bool has(const std::vector<std::string>& list, std::string_view what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

std::string seconds_since(Deadline::Clock::time_point start) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::seconds>(Deadline::Clock::now() - start).count());
}

// The lower id listens, the higher one connects: exactly one of any two, without asking.
bool connects_to(const ProcessRecord& self, const ProcessRecord& peer) { return self.id > peer.id; }

// Both directions take turns often enough that what is in the rings stays in the second-level cache.
LinkOptions local_link_options(const Config& config) {
  return {.eager_bytes = config.shm_eager_bytes, .turn_bytes = 64 << 10};
}

// Pieces as long as the system takes at once: every write ends with a packet that is not full.
LinkOptions remote_link_options(const Config& config) {
  return {.eager_bytes = config.eager_bytes, .turn_bytes = 1 << 20};
}

// What it makes faster works without.
std::shared_ptr<Commons> make_commons() {
  try {
    return std::make_shared<Commons>();
  } catch (const Exception& exception) {
    log_warn("small calls will be slower than they could be: " + exception.error().message);
    return nullptr;
  }
}

LocalEnd local_end(const Config& config, Poller& poller, const ModulePaths& modules) {
  LocalEnd local;
  local.identity = {random_hex(kIdDigits / 2), random_hex(kNonceDigits / 2)};
  local.transports = config.transports;
  if (has(local.transports, "tcp")) {
    const auto filter = effective_filter(config.socket_ifname, std::getenv("GLOO_SOCKET_IFNAME"),
                                         std::getenv("NCCL_SOCKET_IFNAME"));
    local.addresses = candidates(system_addresses(), filter);
  }
  local.tcp.socket_buffer_bytes = config.tcp_buffer_bytes;
  local.tcp.congestion = Congestion(config.tcp_congestion);
  local.shm_ring_bytes = config.shm_ring_bytes;
  if (has(local.transports, "shm") && config.board) local.commons = make_commons();
  OpenTransports others = open_transports(config, modules, local.identity.id, poller);
  local.others = std::move(others.open);
  local.setbacks = std::move(others.setbacks);
  return local;
}

}  // namespace

struct Mesh::State {
  struct Known {
    Link* link;
    std::string route;
    std::string reason;
  };
  // A peer that came in over the UNIX socket and whose shared memory is being set up.
  struct Upgrading {
    Upgrading(std::string id, Fd socket, const LocalEnd& local, Poller& poller)
        : peer_id(std::move(id)),
          handshake(std::move(socket), ShmHandshake::Side::kAcceptor, local.shm_ring_bytes, poller,
                    local.commons.get()) {}
    std::string peer_id;
    ShmHandshake handshake;
  };

  State(const Config& config, Poller& the_poller, const ModulePaths& modules)
      : poller(the_poller),
        options(remote_link_options(config)),
        local_options(local_link_options(config)),
        local(local_end(config, the_poller, modules)),
        advice(network_advice(config, local.addresses)),
        acceptor(local.identity, poller) {
    self.id = local.identity.id;
    self.nonce = local.identity.nonce;
    self.host = host_id();
    self.hostname = host_name();
    self.pid = ::getpid();
    if (has(local.transports, "shm")) {
      Listener listener = Listener::unix_abstract();
      self.unix_name = listener.name();
      acceptor.listen(std::move(listener));
    }
    if (has(local.transports, "tcp")) {
      Listener listener = Listener::tcp(config.port_range);
      self.port = listener.port();
      local.tcp.congestion.prepare(listener.fd());
      for (const auto& one : local.addresses) self.addresses.push_back(one.address.to_string());
      acceptor.listen(std::move(listener));
    }
    for (const auto& one : local.others) self.ends[std::string(one->name())] = one->address();
    if (first_process_here()) self.machine = look_at_machine().machine;
  }

  Known* find(const std::string& id) {
    const auto found = known.find(id);
    return found == known.end() ? nullptr : &found->second;
  }
  bool has_healthy(const std::string& id) {
    const Known* one = find(id);
    return one != nullptr && one->link->failure() == nullptr;
  }
  // A newcomer is wanted unless its process has a link already; a broken one may be replaced: the peer can have given up
  // a connection that this end took for made.
  bool wanted(const std::string& id) {
    return !has_healthy(id) &&
           std::none_of(upgrading.begin(), upgrading.end(),
                        [&](const Upgrading& one) { return one.peer_id == id; });
  }
  void add(const std::string& id, std::unique_ptr<Wire> wire, std::string route,
           std::string reason) {
    const LinkOptions& its = wire->transport() == "shm" ? local_options : options;
    links.push_back(std::make_unique<Link>(std::move(wire), its));
    known[id] = {links.back().get(), std::move(route), std::move(reason)};
  }
  void take_in(Accepted accepted);
  void step_handshakes();
  void accept() {
    // Handshakes first: a peer whose shared memory has failed comes again over tcp.
    step_handshakes();
    for (Accepted& one : acceptor.step([this](const std::string& id) { return wanted(id); }))
      take_in(std::move(one));
  }

  Poller& poller;
  const LinkOptions options, local_options;
  const LocalEnd local;
  ProcessRecord self;
  const std::string advice;  // what to look at when peers cannot be reached
  Acceptor acceptor;
  std::list<Upgrading> upgrading;
  std::map<std::string, Known> known;  // by process id
  std::vector<std::unique_ptr<Link>> links;
};

void Mesh::State::take_in(Accepted accepted) {
  if (accepted.same_host) {
    upgrading.emplace_back(std::move(accepted.peer_id), std::move(accepted.socket), local, poller);
    return;
  }
  const std::string via = leaves_via(accepted.socket.get(), local.addresses);
  auto wire =
      std::make_unique<TcpWire>(std::move(accepted.socket), poller, local.tcp, accepted.from);
  add(accepted.peer_id, std::move(wire),
      "tcp from " + accepted.from + (via.empty() ? "" : " " + via), "");
}

void Mesh::State::step_handshakes() {
  for (auto one = upgrading.begin(); one != upgrading.end();) {
    if (!one->handshake.step()) {
      ++one;
      continue;
    }
    if (auto wire = one->handshake.take())
      add(one->peer_id, std::move(wire), "shm", "");
    else
      log_info("a peer on this host cannot be joined by shared memory: " + one->handshake.cause());
    one = upgrading.erase(one);
  }
}

namespace {

// A member of a new group that has no link yet.
struct Missing {
  int rank;
  const ProcessRecord* record;
  bool we_connect;
  std::unique_ptr<Dialer>
      dialer;  // null: the peer connects to us, or it is not this one's turn yet
  std::unique_ptr<Waiter> waiter{};  // null: we connect
};

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

void check_common_transport(const Missing& peer, const ProcessRecord& self, const LocalEnd& local) {
  if (!common_transports(local, self, *peer.record).empty()) return;
  throw Exception({ErrorCode::kUnsupported,
                   person(peer.rank, *peer.record) +
                       " and this rank have no transport in common; " + "HCCL_LIKE_TRANSPORTS is " +
                       join(local.transports) + " here, and shm joins processes of one host only" +
                       (local.setbacks.empty() ? "" : "; " + local.setbacks),
                   peer.rank});
}

// Why a peer is not there yet, as far as this end can know.
std::string explain(const Missing& peer, const ProcessRecord& self) {
  const std::string who = person(peer.rank, *peer.record) + ": ";
  if (peer.dialer) return who + peer.dialer->report();
  if (peer.we_connect) return who + "not tried yet, others came first";
  const std::string door =
      self.port == 0 ? "" : " at port " + std::to_string(self.port) + " of " + join(self.addresses);
  const bool failed = peer.waiter && !peer.waiter->report().empty();
  return who + "it connects to this rank, and has not come" + door +
         (failed ? "; " + peer.waiter->report() : "");
}

std::string explain(const std::list<Missing>& missing, const ProcessRecord& self) {
  std::string text;
  for (const Missing& peer : missing) text += (text.empty() ? "" : " | ") + explain(peer, self);
  return text;
}

}  // namespace

Mesh::Mesh(const Config& config, Poller& poller, const ModulePaths& modules)
    : state_(std::make_unique<State>(config, poller, modules)) {}

// Nobody waits for us any more, so nothing here may take long or throw: a peer that is dead has a failed link, and one
// that is stopped or busy costs the farewell's time at most. What it did not fetch by then is safe all the same: in
// shared memory, which stays mapped at its end, or in the kernel (see TcpWire).
//
// After a fork the child holds copies of everything, and sockets and epoll sets are shared: closing them in order there
// would take bytes and registrations away from the parent. The child leaves all of it to its own end.
Mesh::~Mesh() {
  if (::getpid() != state_->self.pid) {
    (void)state_.release();
    return;
  }
  try {
    for (auto& link : state_->links)
      if (link->failure() == nullptr) link->send_goodbye();
    const Deadline deadline = Deadline::after(kFarewell);
    const auto busy = [&] {
      bool any = false;
      for (auto& link : state_->links) {
        link->progress();
        any |= link->failure() == nullptr && !link->flushed();
      }
      return any;
    };
    while (busy() && !deadline.expired()) {
      state_->poller.poll();
      ::usleep(100);
    }
  } catch (const std::exception& exception) {
    log_warn(std::string("while closing the connections: ") + exception.what());
  }
}

const ProcessRecord& Mesh::self() const { return state_->self; }

const std::shared_ptr<Commons>& Mesh::commons() const { return state_->local.commons; }

Roster Mesh::exchange(Store& store, int rank, int size, Deadline deadline,
                      std::optional<uint32_t> area,
                      const std::map<std::string, std::string>& settings) const {
  ProcessRecord self = state_->self;
  self.area = area;
  self.settings = settings;
  return exchange_records(store, self, rank, size, deadline);
}

void Mesh::poll() { state_->accept(); }

const std::vector<std::unique_ptr<Link>>& Mesh::links() const { return state_->links; }

std::string Mesh::describe(const Link& link) const {
  for (const auto& [id, known] : state_->known)
    if (known.link == &link)
      return known.route + (known.reason.empty() ? "" : " (" + known.reason + ")");
  return "a connection that was replaced";
}

std::vector<Link*> Mesh::connect(const std::vector<ProcessRecord>& members, int rank,
                                 Deadline deadline, const std::function<void()>& idle) {
  State& state = *state_;
  check_members(members, rank, state.self);

  std::list<Missing> missing;
  for (size_t i = 1; i < members.size(); ++i) {
    // Everybody begins with its own neighbours, so that a thousand ranks do not knock at one door first.
    const size_t peer = (static_cast<size_t>(rank) + i) % members.size();
    if (state.has_healthy(members[peer].id)) continue;
    missing.push_back(
        {static_cast<int>(peer), &members[peer], connects_to(state.self, members[peer]), nullptr});
    check_common_transport(missing.back(), state.self, state.local);
  }

  // A transport of which nothing is known may be unable to wake a sleeper.
  const milliseconds nap = state.links.empty() && state.local.others.empty() ? kNap : kShortNap;
  const auto start = Deadline::Clock::now();
  Deadline progress = Deadline::after(kProgressEvery);
  size_t dialing = 0;
  // True once the peer has a link.
  const auto reached = [&](Missing& peer) {
    if (peer.we_connect && !peer.dialer && dialing < kDialersAtOnce) {
      peer.dialer = std::make_unique<Dialer>(state.local, state.self, *peer.record, state.poller);
      ++dialing;
    }
    const auto take = [&](Dialed dialed) {
      state.add(peer.record->id, std::move(dialed.wire), std::move(dialed.route),
                std::move(dialed.reason));
    };
    if (peer.dialer && peer.dialer->step()) take(peer.dialer->take());
    if (!peer.we_connect && !peer.waiter && !state.local.others.empty())
      peer.waiter = std::make_unique<Waiter>(state.local, state.self, *peer.record);
    if (peer.waiter && !state.has_healthy(peer.record->id) && peer.waiter->step())
      take(peer.waiter->take());
    if (!state.has_healthy(peer.record->id)) return false;
    State::Known& known = *state.find(peer.record->id);
    if (known.reason.empty())
      known.reason = state.self.host == peer.record->host ? "same host" : "other host";
    log_info([&] { return person(peer.rank, *peer.record) + ": " + describe(*known.link); });
    if (peer.dialer) --dialing;
    return true;
  };

  for (;;) {
    state.poller.poll();
    state.accept();
    const size_t before = missing.size();
    missing.remove_if(reached);
    if (missing.empty()) break;
    if (deadline.expired())
      throw Exception({ErrorCode::kTimeout,
                       person(rank, state.self) + " timed out connecting to " +
                           std::to_string(missing.size()) + " of " +
                           std::to_string(members.size() - 1) +
                           " peers: " + explain(missing, state.self) + state.advice,
                       missing.front().rank});
    if (progress.expired()) {
      log_info([&] {
        return "still connecting after " + seconds_since(start) +
               " s: " + explain(missing, state.self);
      });
      progress = Deadline::after(kProgressEvery);
    }
    if (idle) idle();
    if (missing.size() != before) continue;
    Deadline wake = earliest(earliest(deadline, state.acceptor.next_timer()), Deadline::after(nap));
    for (const Missing& peer : missing)
      if (peer.dialer) wake = earliest(wake, peer.dialer->next_timer());
    state.poller.sleep(wake);
  }

  std::vector<Link*> links(members.size(), nullptr);
  for (size_t i = 0; i < members.size(); ++i)
    if (const auto* known = state.find(members[i].id)) links[i] = known->link;
  return links;
}

}  // namespace hccl_like

#include "transport/mesh/mesh.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/machine/fence.h"
#include "core/memory/copy.h"
#include "transport/bootstrap/host.h"
#include "transport/bootstrap/listener.h"
#include "transport/link/owing.h"
#include "transport/mesh/exchange.h"
#include "transport/mesh/report.h"
#include "transport/mesh/state.h"
#include "transport/network/address.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMeshFarewell{1000};

bool has(const std::vector<std::string>& list, std::string_view what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

// Directions alternate often enough that ring contents stay in the L2 cache. The last-level cache
// holds both ends of a message only up to half its size.
LinkOptions local_link_options(const Config& config) {
  return {.eager_bytes = config.shm_eager_bytes,
          .turn_bytes = 64 << 10,
          .least_past_caches = last_cache_bytes() / 2};
}

// Pieces as long as one system call takes: each write ends with a packet that is not full.
LinkOptions remote_link_options(const Config& config) {
  return {.eager_bytes = config.eager_bytes, .turn_bytes = 1 << 20};
}

// Commons only improves performance: a failure is no error.
std::shared_ptr<Commons> make_commons(const std::string& owner) {
  try {
    return std::make_shared<Commons>(owner);
  } catch (const Exception& exception) {
    log_warn("small calls will be slower than they could be: " + exception.error().message);
    return nullptr;
  }
}

LocalEnd local_end(const Config& config, Poller& poller, const ModulePaths& modules) {
  LocalEnd local;
  local.job = JobKey::of(config);
  local.sealed = config.encrypt;
  local.require_auth = config.require_auth;
  local.identity = new_identity(local.job, local.sealed);
  local.transports = config.transports;
  OpenTransports others = open_transports(config, modules, local.identity.id, poller);
  local.others = std::move(others.open);
  local.setbacks = std::move(others.setbacks);
  // Other transports have their lifelines over TCP.
  if (has(local.transports, "tcp") || !local.others.empty()) {
    const auto filter = effective_filter(config.socket_ifname, std::getenv("GLOO_SOCKET_IFNAME"),
                                         std::getenv("NCCL_SOCKET_IFNAME"));
    local.addresses = candidates(system_addresses(), filter);
  }
  local.tcp.socket_buffer_bytes = config.tcp_buffer_bytes;
  local.tcp.congestion = Congestion(config.tcp_congestion);
  local.tcp.broke = std::make_shared<bool>(false);
  local.tcp_rails.rails = config.tcp_rails.count;
  local.shm_ring_bytes = config.shm_ring_bytes;
  if (has(local.transports, "shm") && config.board) local.commons = make_commons(local.identity.id);
  return local;
}

bool all_on_one_host(const Roster& roster) {
  return std::ranges::all_of(roster.members, [&](const ProcessRecord& member) {
    return member.host == roster.members[0].host;
  });
}

// The published addresses, in listening order. The first address's port applies to all; the first
// must be a loopback address, whose listener stays open.
std::vector<Address> places_to_listen(const std::vector<InterfaceAddress>& offered) {
  std::vector<Address> places;
  for (const InterfaceAddress& one : offered) places.push_back(one.address);
  std::stable_partition(places.begin(), places.end(), std::mem_fn(&Address::is_loopback));
  return places;
}

// Call it after the ranks' settings were compared, so that all ranks throw.
void check_secret(const LocalEnd& local, const Roster& roster) {
  if (local.job.is_secret() || roster.members.size() < 2) return;
  if (local.require_auth && !all_on_one_host(roster))
    throw_misuse(
        "HCCL_LIKE_REQUIRE_AUTH=1, and the job has no secret for its ranks on several hosts: write "
        "one with openssl rand "
        "-hex 32 into a file of mode 0600 on every host and name it in HCCL_LIKE_SECRET_FILE");
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    log_info(
        "neither HCCL_LIKE_SECRET_FILE nor HCCL_LIKE_SECRET is set: what ranks prove to each other "
        "stands in the store, so "
        "whoever can read the store can take part");
}

}  // namespace

Mesh::State::State(const Config& config, Poller& the_poller, const ModulePaths& modules)
    : poller(the_poller),
      options(remote_link_options(config)),
      local_options(local_link_options(config)),
      tree_ranks(config.tree_ranks),
      connect_timeout(config.connect_timeout),
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
    acceptor.listeners().add(std::move(listener));
  }
  const bool tcp = has(local.transports, "tcp");
  if ((tcp || !local.others.empty()) && !local.addresses.empty()) {
    uint16_t port = 0;
    for (Listener& listener : Listener::tcp(places_to_listen(local.addresses), config.port_range)) {
      port = listener.port();
      local.tcp.congestion.prepare(listener.fd());
      acceptor.listeners().add(std::move(listener));
    }
    if (tcp) self.port = port;
    if (!local.others.empty()) self.ends[kLifelineEnd] = std::to_string(port);
    for (const auto& one : local.addresses) self.addresses.push_back(one.address.to_string());
  }
  for (const auto& one : local.others) self.ends[std::string(one->name())] = one->address();
  if (local.commons) {
    bell = std::make_unique<Bell>(bell_name(self.unix_name), poller);
    self.commons = local.commons->fd();
  }
  if (first_process_here()) self.machine = look_at_machine().machine;
}

Mesh::Mesh(const Config& config, Poller& poller, const ModulePaths& modules)
    : state_(std::make_unique<State>(config, poller, modules)) {}

// Must neither take long nor throw: a dead peer has a failed link, and a stopped or busy peer costs
// at most the farewell timeout. Unread bytes survive: in shared memory mapped by the peer, or in
// the kernel (see TcpWire).
//
// A forked child shares the parent's sockets and epoll sets, so closing them in order would take
// bytes and registrations from the parent. The child leaks the state instead.
Mesh::~Mesh() {
  if (::getpid() != state_->self.pid) {
    (void)state_.release();
    return;
  }
  try {
    if (state_->local.commons) state_->local.commons->leave();
    full_fence();
    for (auto& link : state_->links) {
      if (link->failure() == nullptr) link->send_goodbye();
      if (!link->connected()) link->nudge();
      state_->any_wanted |= link->needs_wire() && !link->connected();
    }
    const Deadline deadline = Deadline::after(kMeshFarewell);
    const auto busy = [&] {
      bool any = false;
      for (auto& link : state_->links) {
        link->progress();
        const bool owes = link->connected() ? !link->flushed() : link->needs_wire();
        any |= link->failure() == nullptr && owes;
      }
      return any;
    };
    while (busy() && !deadline.expired()) {
      state_->poller.poll();
      state_->step();
      ::usleep(100);
    }
  } catch (const std::exception& exception) {
    log_warn(std::string("while closing the connections: ") + exception.what());
  }
}

const ProcessRecord& Mesh::self() const { return state_->self; }

bool Mesh::meets_by_tree(int size) const {
  return state_->tree_ranks > 0 && static_cast<uint32_t>(size) >= state_->tree_ranks;
}

void Mesh::show(std::shared_ptr<const CounterFile> counters) {
  state_->counters = std::move(counters);
}

std::vector<RankCounters> Mesh::counters_of(const std::vector<RankRecord>& ranks, Deadline deadline,
                                            const std::atomic<bool>& stop) const {
  return hccl_like::counters_of(state_->local, state_->self, ranks, deadline, stop);
}

const std::shared_ptr<Commons>& Mesh::commons() const { return state_->local.commons; }

Roster Mesh::exchange(Store& store, int rank, int size, Deadline deadline,
                      std::optional<uint32_t> area,
                      const std::map<std::string, std::string>& settings, std::string_view scope,
                      const std::string& device) const {
  ProcessRecord self = state_->self;
  self.area = area;
  self.settings = settings;
  self.device = device;
  Listeners::Rendezvous meeting(state_->acceptor.listeners());
  MeshCourier courier(state_->local, state_->self, state_->rosters);
  Roster roster = exchange_records(store, state_->local.job, self, rank, size, deadline, scope,
                                   meets_by_tree(size) ? &courier : nullptr);
  if (!all_on_one_host(roster)) meeting.others_come();
  check_secret(state_->local, roster);
  return roster;
}

void Mesh::poll() { state_->step(); }

const std::vector<std::unique_ptr<Link>>& Mesh::links() const { return state_->links; }

std::vector<Link*> Mesh::links_to(const std::vector<ProcessRecord>& members) const {
  return state_->links_of(members);
}

std::string Mesh::describe(const Link& link) const { return state_->describe(link); }

bool Mesh::is_restless() const {
  return state_->any_wanted || !state_->dialing.empty() || !state_->upgrading.empty() ||
         state_->acceptor.guests() > 0 || state_->makes_lifelines() ||
         (state_->rails_busy() &&
          std::ranges::any_of(state_->railings,
                              [](const State::Railing& one) { return one.rails.is_restless(); }));
}

bool Mesh::hand_on() const { return hccl_like::hand_on(state_->links); }
bool Mesh::owes() const { return owe(state_->links); }

bool Mesh::has_absent() const { return !state_->absent.empty(); }

bool Mesh::may_accept() const {
  return has_absent() || !state_->railings.empty() || !state_->lifelines.empty();
}

int Mesh::listener_fd() const { return state_->acceptor.listeners().fd(); }

Deadline Mesh::next_timer() const {
  Deadline next = earliest(state_->acceptor.next_timer(), state_->early.next_timer());
  for (const State::Absent* one : state_->dialing)
    next = earliest(next, earliest(one->dialer->next_timer(),
                                   Deadline::at(one->since + state_->connect_timeout)));
  if (*state_->local.tcp.broke) return Deadline::after(milliseconds(0));
  if (state_->rails_pending)
    for (const State::Railing& one : state_->railings)
      next = earliest(next, one.rails.next_timer());
  for (const State::Lifeline& one : state_->lifelines)
    if (one.dialer || one.breaks)
      next = earliest(next,
                      one.dialer ? earliest(one.dialer->next_timer(), one.deadline) : one.deadline);
  return next;
}

void Mesh::set_asleep(bool asleep) {
  if (state_->bell) state_->local.commons->set_asleep(asleep);
}

}  // namespace hccl_like

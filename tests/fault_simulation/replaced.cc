// The parts of a process that touch the system, for a job in virtual time. The linker takes these
// instead of those in the layers' archives; the rest is what ships.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "core/machine/idle_cores.h"
#include "tests/fault_simulation/stage.h"
#include "transport/link/owing.h"
#include "transport/mesh/mesh.h"
#include "transport/same_host/local_peer.h"
#include "transport/wire/poller.h"

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  if (hccl_like::fault_simulation::now >= 0)
    return time_point(
        duration(hccl_like::fault_simulation::kBegin + hccl_like::fault_simulation::now));
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time_point(seconds(time.tv_sec) + nanoseconds(time.tv_nsec));
}

namespace hccl_like {

// Files of the system that say how many cores are idle: read for each process, they would take most
// of the time.
IdleCores::IdleCores(const char*, size_t) : host_(1) {}
size_t IdleCores::usable() const { return 1; }
size_t IdleCores::idle(size_t) const { return 0; }

Poller::Poller() = default;
void Poller::watch(int, unsigned, Pollable&) {}
void Poller::rewatch(int, unsigned, Pollable&) {}
void Poller::forget(int) noexcept {}
bool Poller::poll() { return false; }
void Poller::ring(int) noexcept {}

void Poller::sleep(Deadline deadline) {
  constexpr fault_simulation::Time kLongest = 100 * fault_simulation::kMillisecond;
  fault_simulation::asleep_until = fault_simulation::now + kLongest;
  if (deadline.is_never()) return;
  const auto left = deadline.time_point().time_since_epoch().count() - fault_simulation::kBegin;
  fault_simulation::asleep_until = std::clamp<fault_simulation::Time>(
      left, fault_simulation::now, fault_simulation::asleep_until);
}

// Links to all ranks, each of which gets its wire when it wants one.
struct Mesh::State {
  fault_simulation::World& world = *fault_simulation::stage.world;
  const int rank = fault_simulation::stage.rank;
  const LinkOptions options = fault_simulation::stage.options;
  std::vector<std::unique_ptr<Link>> links;
  std::vector<int> peers;  // of the links
  bool wanted = false;
  size_t absent = 0;
};

Mesh::Mesh(const Config&, Poller&, const ModulePaths&) : state_(std::make_unique<State>()) {
  State& state = *state_;
  for (int peer = 0; peer < state.world.size(); ++peer) {
    if (peer == state.rank) continue;
    state.links.push_back(
        std::make_unique<Link>("fault simulation", state.options, nullptr, &state.wanted));
    state.peers.push_back(peer);
  }
  state.absent = state.links.size();
}

Mesh::~Mesh() = default;

void Mesh::poll() {
  State& state = *state_;
  for (auto& knock : std::exchange(state.world.knocks(state.rank), {})) {
    const auto at = static_cast<size_t>(knock.peer - (knock.peer > state.rank));
    Link& link = *state.links[at];
    if (link.connected() || link.failure() != nullptr) continue;
    --state.absent;
    if (knock.wire)
      link.attach(std::move(knock.wire), state.options);
    else
      link.fail({knock.late ? ErrorCode::kTimeout : ErrorCode::kPeerLost,
                 "cannot connect to rank " + std::to_string(knock.peer) + ": " + knock.refused,
                 knock.peer});
  }
  if (!std::exchange(state.wanted, false)) return;
  for (size_t i = 0; i < state.links.size(); ++i)
    if (!state.links[i]->connected() && state.links[i]->needs_wire())
      state.world.dial(state.rank, state.peers[i]);
}

const std::vector<std::unique_ptr<Link>>& Mesh::links() const { return state_->links; }
std::string Mesh::describe(const Link&) const { return "fault simulation"; }
bool Mesh::is_restless() const {
  return state_->wanted || !state_->world.knocks(state_->rank).empty();
}
bool Mesh::hand_on() const { return hccl_like::hand_on(state_->links); }
bool Mesh::owes() const { return owe(state_->links); }
bool Mesh::has_absent() const { return state_->absent > 0; }
Deadline Mesh::next_timer() const { return Deadline::never(); }
void Mesh::set_asleep(bool) {}
int Mesh::listener_fd() const { return -1; }
const std::shared_ptr<Commons>& Mesh::commons() const {
  static const std::shared_ptr<Commons> none;
  return none;
}

}  // namespace hccl_like

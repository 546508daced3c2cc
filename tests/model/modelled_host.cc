#include "tests/model/modelled_host.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "tests/model/explorer.h"
#include "transport/shm/shm_wire.h"

namespace hccl_like {
namespace {

constexpr size_t kRingBytes = 4096;  // the smallest; as large as the page of indices before it

}  // namespace

std::map<int, size_t>& model::bells() {
  static std::map<int, size_t> by_descriptor;
  return by_descriptor;
}

// transport/wire/poller.h for modelled processes: one that sleeps here stops until its doorbell is
// rung, and for no other reason. The real one wakes after 100 ms at the latest, which would hide a
// lost wake-up.
Poller::Poller() : doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
void Poller::watch(int, unsigned, Pollable&) {}
void Poller::rewatch(int, unsigned, Pollable&) {}
bool Poller::poll() { return false; }
void Poller::forget(int) noexcept {}
void Poller::sleep(Deadline) {
  model::Explorer::active()->sleep(model::bells().at(doorbell_.get()),
                                   std::source_location::current());
}
void Poller::ring(int doorbell) noexcept {
  model::Explorer::active()->ring(model::bells().at(doorbell), std::source_location::current());
}

namespace model {

std::span<std::byte> writable(Commons& commons) {
  return {commons.areas().data(0), Commons::kBytes};  // areas come first
}

LifeWord& begin_life(std::span<std::byte> commons) {
  std::byte* const place = commons.data() + Commons::kLifeBegin;
  std::memset(place, 0, sizeof(LifeWord));
  auto& word = *reinterpret_cast<LifeWord*>(place);
  word.died();
  std::atomic<uint32_t>& leaving =
      reinterpret_cast<CommonsNotes*>(commons.data() + Commons::kNotesBegin)->leaving;
  std::memset(static_cast<void*>(&leaving), 0, sizeof leaving);
  leaving.load();
  return word;
}

ModelledHost::ModelledHost(size_t ranks, const std::vector<const Commons*>& shown)
    : by_rank_(ranks, std::vector<Link*>(ranks)) {
  for (size_t i = 0; i < ranks; ++i) pollers_.push_back(std::make_unique<Poller>());
  for (size_t i = 0; i < ranks; ++i)
    for (size_t j = i + 1; j < ranks; ++j) connect(i, j, shown);
}

void ModelledHost::connect(size_t first, size_t second, const std::vector<const Commons*>& shown) {
  std::array<int, 2> sockets{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) std::abort();
  ShmSegment segment = ShmSegment::create(kRingBytes);
  indices_.push_back(Mapping::map(segment.fd(), kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED));
  ShmSegment same = ShmSegment::open(Fd(::dup(segment.fd())), kRingBytes);
  const auto add_end = [&](int side, size_t self, size_t peer, ShmSegment memory) {
    const Commons* const seen = shown.empty() ? nullptr : shown[peer];
    ShmEnd end{.side = side,
               .socket = Fd(sockets[static_cast<size_t>(side)]),
               .segment = std::move(memory),
               .doorbell = Fd(::dup(pollers_[peer]->doorbell())),
               .commons = seen ? std::make_unique<PeerCommons>(Fd(::dup(seen->fd()))) : nullptr};
    rings_.emplace_back(end.doorbell.get(), peer);
    auto wire = std::make_unique<ShmWire>(std::move(end), *pollers_[self]);
    links_.push_back(std::make_unique<Link>(std::move(wire), LinkOptions{}));
    by_rank_[self][peer] = links_.back().get();
  };
  add_end(0, first, second, std::move(segment));
  add_end(1, second, first, std::move(same));
}

void ModelledHost::begin_execution() {
  bells().clear();
  for (const auto& poller : pollers_) bells()[poller->doorbell()] = Explorer::active()->add_bell();
  for (const auto& [descriptor, rank] : rings_)
    bells()[descriptor] = bells().at(pollers_[rank]->doorbell());
  for (const Mapping& page : indices_) std::memset(page.data(), 0, page.size());
  // Everything shared gets its place before threads run.
  for (const auto& link : links_) {
    link->prepare_sleep();
    link->end_sleep();
    link->nudge();
  }
}

}  // namespace model
}  // namespace hccl_like

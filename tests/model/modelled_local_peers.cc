#include "tests/model/modelled_local_peers.h"

#include <linux/futex.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "tests/model/explorer.h"
#include "tests/model/modelled_host.h"
#include "transport/mesh/mesh.h"
#include "transport/same_host/local_peer.h"

namespace hccl_like {
namespace {

// Whose bell hangs where.
std::map<std::string, const Poller*>& hung() {
  static std::map<std::string, const Poller*> by_name;
  return by_name;
}

}  // namespace

// transport/same_host/life.h without a thread: ModelledLocalPeers::die() is the kernel.
Life::Life(LifeWord& word) : word_(word) {}
Life::~Life() = default;
// Named by what is compiled beside what is modelled, and not called.
void Life::lend(std::function<void()>) { std::abort(); }
void Life::take_back() { std::abort(); }

// transport/same_host/bell.h without a socket.
Bell::Place Bell::place(const std::string& name) {
  Place place;
  place.length =
      static_cast<socklen_t>(name.copy(place.address.sun_path, sizeof place.address.sun_path));
  return place;
}
Bell::Bell(const std::string& name, Poller& poller) : poller_(poller) { hung()[name] = &poller; }
Bell::~Bell() = default;
void Bell::ring(const Place& place) const noexcept {
  Poller::ring(hung().at(std::string(place.address.sun_path, place.length))->doorbell());
}
void Bell::ready(unsigned) {}

namespace model {

ModelledLocalPeers::Person::Person(size_t rank)
    : name("rank " + std::to_string(rank)),
      bell(bell_name(name), poller),
      commons(name),
      memory(writable(commons)) {}

ModelledLocalPeers::ModelledLocalPeers(size_t ranks) {
  for (size_t i = 0; i < ranks; ++i) people_.push_back(std::make_unique<Person>(i));
}

void ModelledLocalPeers::begin_execution() {
  for (const auto& person : people_) {
    bells()[person->poller.doorbell()] = Explorer::active()->add_bell();
    person->life = &begin_life(person->memory);
    std::byte* const notes = person->memory.data() + Commons::kNotesBegin;
    constexpr size_t kAfterOwner = sizeof(CommonsNotes::owner);
    std::memset(notes + kAfterOwner, 0, sizeof(CommonsNotes) - kAfterOwner);
    // Everything shared gets its place before threads run.
    auto& shown = *reinterpret_cast<CommonsNotes*>(notes);
    for (const auto word : {&CommonsNotes::asleep, &CommonsNotes::leaving, &CommonsNotes::given_up})
      (shown.*word).load();
    for (uint32_t i = 0; i < 2 * CommonsNotes::kReasons; ++i) shown.communicators[i].load();
    for (GuardedText& reason : shown.reasons) reason.write(1, std::string(kReasonBytes, ' '));
    for (GuardedText& reason : shown.reasons) reason.write(0, {});
  }
}

std::unique_ptr<Link> ModelledLocalPeers::meet(size_t self, size_t peer) {
  if (self == peer) return nullptr;
  Person& own = *people_[self];
  ProcessRecord record;
  record.id = record.unix_name = people_[peer]->name;
  record.pid = ::getpid();
  record.commons = people_[peer]->commons.fd();
  auto local_peer = LocalPeer::meet(record, own.commons, own.bell, own.poller);
  check(local_peer != nullptr, "ranks that cannot meet");
  return std::make_unique<Link>("shm", LinkOptions{}, std::move(local_peer), nullptr);
}

void ModelledLocalPeers::die(size_t rank) {
  people_[rank]->life->futex.store(FUTEX_OWNER_DIED, std::memory_order_seq_cst);
  for (const auto& person : people_)
    if (person != people_[rank]) Poller::ring(person->poller.doorbell());
}

}  // namespace model
}  // namespace hccl_like

// The part of the kernels that runs processes, and keeps their descriptors.
#include <algorithm>
#include <utility>

#include "tests/fault_simulation/sockets/network.h"

namespace hccl_like::fault_simulation {

// ------------------------------------------------------------------------------------- descriptors

unsigned EpollFile::ready() const { return collect(nullptr, 1) > 0 ? EPOLLIN : 0u; }

int EpollFile::collect(epoll_event* events, int most) const {
  int found = 0;
  for (const auto& [fd, watch] : watched) {
    const auto file = watch.file.lock();
    if (!file) continue;
    const unsigned bits = file->ready() & (watch.event.events | EPOLLERR | EPOLLHUP);
    if (bits == 0) continue;
    if (events != nullptr) events[found] = {.events = bits, .data = watch.event.data};
    if (++found == most) break;
  }
  return found;
}

unsigned Socket::ready() const {
  switch (state) {
    case State::kFresh:
      return EPOLLOUT | EPOLLHUP;
    case State::kListening:
      return backlog.empty() ? 0u : EPOLLIN;
    case State::kConnecting:
      return 0;
    default:
      break;
  }
  unsigned bits = 0;
  if (unread() > 0 || fin || error != 0 || state == State::kOver) bits |= EPOLLIN;
  if (fin) bits |= EPOLLRDHUP;
  if (error != 0) bits |= EPOLLERR;
  if (state == State::kOver) bits |= EPOLLHUP | EPOLLRDHUP | EPOLLOUT;
  if (capacity_left() > 0) bits |= EPOLLOUT;
  return bits;
}

size_t Socket::capacity_left() const {
  const size_t unread_there = other ? other->unread() : 0;
  const size_t used = under_way + unread_there;
  return used < the_network->capacity_ ? the_network->capacity_ - used : 0;
}

int Network::open(std::shared_ptr<File> file) {
  size_t free = 0;
  while (free < files_.size() && files_[free]) ++free;
  if (free == files_.size()) files_.emplace_back();
  const int fd = kFirstFd + static_cast<int>(free);
  processes_[index(file->process())]->fds.insert(fd);
  files_[free] = std::move(file);
  return fd;
}

std::shared_ptr<File> Network::file(int fd) const {
  const auto at = static_cast<size_t>(fd - kFirstFd);
  return fd >= kFirstFd && at < files_.size() ? files_[at] : nullptr;
}

void Network::close(int fd) {
  const auto gone = file(fd);
  if (!gone) return;
  files_[static_cast<size_t>(fd - kFirstFd)].reset();
  Process& owner = *processes_[index(gone->process())];
  owner.fds.erase(fd);
  // A kernel takes a descriptor off every set when nothing refers to its file any more.
  for (const int other : owner.fds)
    if (const auto set = find<EpollFile>(other)) set->watched.erase(fd);
  if (const auto socket = std::dynamic_pointer_cast<Socket>(gone)) close(socket);
}

size_t Network::descriptors(int process) const { return processes_[index(process)]->fds.size(); }

void Network::changed(const File& file) {
  const int process = file.process();
  if (process < 0) return;
  Process& owner = *processes_[index(process)];
  if (owner.blocked && owner.alive) wake_at(process, now + random.between(0, 20 * kMicrosecond));
}

// --------------------------------------------------------------------------------------- processes

Network::Network(uint64_t seed, int hosts)
    : random(seed), hosts_(hosts), silence_(static_cast<size_t>(hosts * hosts)) {
  slowest_ = random.chance(70) ? 100 * kMicrosecond : 20 * kMillisecond;
  capacity_ = random.chance(30) ? 2048 : 64 << 10;
}

Network::~Network() {
  for (auto& file : files_) {
    if (const auto socket = std::dynamic_pointer_cast<Socket>(file)) {
      socket->other.reset();
      socket->backlog.clear();
    }
  }
  for (auto& weak : sockets_)
    if (const auto socket = weak.lock()) socket->other.reset();
}

int Network::start(int host, Time when, std::function<void()> body) {
  const int process = static_cast<int>(processes_.size());
  processes_.push_back(std::make_unique<Process>());
  processes_.back()->host = host;
  processes_.back()->fiber = std::make_unique<Fiber>(std::move(body));
  processes_.back()->blocked = true;
  wake_at(process, when);
  return process;
}

void Network::kill(int process) {
  Process& one = *processes_[index(process)];
  if (!one.alive || one.fiber->done()) return;
  one.alive = false;
  // Whatever it does from here on concerns nobody: its code is unwound, as memory is.
  const std::set<int> fds = one.fds;
  for (const int fd : fds) close(fd);
  while (one.begun && !one.fiber->done()) resume(process);
  for (const int fd : std::set<int>(one.fds)) close(fd);
}

void Network::stop(int process, Time until) {
  Process& one = *processes_[index(process)];
  one.stopped_until = std::max(one.stopped_until, until);
}

void Network::resume(int process) {
  Process& one = *processes_[index(process)];
  one.blocked = false;
  one.begun = true;
  current_ = process;
  one.fiber->resume();
  current_ = -1;
}

bool Network::run_one(Time limit) {
  if (events_.empty() || events_.top().at > limit) return false;
  const Event event = events_.top();
  events_.pop();
  now = std::max(now, event.at);
  event.what();
  return true;
}

void Network::at(Time when, std::function<void()> what) {
  events_.push({std::max(when, now), ++order_, std::move(what)});
}

void Network::wake_at(int process, Time when) {
  const uint64_t turn = processes_[index(process)]->turn;
  at(when, [this, process, turn] {
    Process& one = *processes_[index(process)];
    if (one.turn != turn || !one.blocked || !one.alive || one.fiber->done()) return;
    if (one.stopped_until > now) {
      if (one.stopped_until < kForEver) wake_at(process, one.stopped_until);
      return;
    }
    ++one.turn;
    resume(process);
  });
}

Time Network::clock() {
  if (!current_is_dead()) return now;
  // Its waits all end at once.
  return now + (processes_[index(current_)]->ahead += kSecond);
}

void Network::block(Time until) {
  Process& one = *processes_[index(current_)];
  if (!one.alive) return;
  ++one.turn;
  one.blocked = true;
  if (until < kForEver) wake_at(current_, until);
  one.fiber->yield();
}

void Network::wake(int process) { wake_at(process, now + random.between(0, 20 * kMicrosecond)); }

void Network::step() {
  if (current_is_dead()) return;
  ++steps_;
  if (steps_ >= alarm) {
    alarm = UINT64_MAX;
    at(now, on_alarm);
    block(now);
  } else if (random.chance(10)) {
    block(now + random.between(0, 5 * kMicrosecond));
  }
}

}  // namespace hccl_like::fault_simulation

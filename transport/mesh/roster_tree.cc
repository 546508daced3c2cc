#include "transport/mesh/roster_tree.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "transport/bootstrap/connector.h"
#include "transport/bootstrap/dialer.h"
#include "transport/bootstrap/lifeline.h"

namespace hccl_like {
namespace {

constexpr int kFanOut = 8;
constexpr size_t kLongestGroup = 64;
constexpr size_t kMostBytes = size_t{1} << 30;  // of a list
constexpr char kTaken = '+';                    // the answer of a rank that has the whole list

std::vector<Way> ways(const LocalEnd& local, const ProcessRecord& self, const ProcessRecord& peer) {
  std::vector<Way> ways;
  if (self.host == peer.host && !peer.unix_name.empty())
    ways.push_back(way_to_unix(peer.unix_name));
  const uint16_t port = listening_port(peer);
  if (port == 0) return ways;
  for (Way& way : local.tcp_ways(self, peer, port, 0)) ways.push_back(std::move(way));
  return ways;
}

// Gives a list to one child.
class Handing final : private Pollable {
 public:
  Handing(const LocalEnd& local, const ProcessRecord& self, const RosterChild& child,
          const std::string& text, Poller& poller)
      : rank_(child.rank),
        text_(text),
        poller_(poller),
        target_(local.identity_of(child.record)),
        connector_(local.identity, target_, ways(local, self, child.record), poller, kRosterRail) {}
  ~Handing() override {
    if (socket_.valid()) poller_.forget(socket_.get());
  }

  int rank() const { return rank_; }
  // Empty once the child has the list.
  const std::optional<std::string>& problem() const { return problem_; }
  Deadline next_timer() const { return earliest(connector_.next_timer(), patience_); }

  // True once it is over.
  bool step() {
    if (!socket_.valid()) {
      if (!connector_.step()) {
        if (!connector_.nobody_listens() && !patience_.expired()) return false;
        problem_ = connector_.report();
        return true;
      }
      socket_ = connector_.take();
      advanced();
      poller_.watch(socket_.get(), EPOLLOUT, *this);
    }
    if (std::exchange(ready_, false) && (sent_ < text_.size() ? send() : hear())) return true;
    if (!patience_.expired()) return false;
    problem_ = "it takes nothing for " + std::to_string(MeshCourier::kPatience.count()) + " ms";
    return true;
  }

 private:
  void ready(unsigned) override { ready_ = true; }
  void advanced() { patience_ = Deadline::after(MeshCourier::kPatience); }
  bool fail() {
    problem_ = errno_text(errno);
    return true;
  }

  bool send() {
    const ssize_t bytes = ::send(socket_.get(), text_.data() + sent_, text_.size() - sent_,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (bytes < 0) return errno != EAGAIN && errno != EINTR && fail();
    sent_ += static_cast<size_t>(bytes);
    advanced();
    if (sent_ < text_.size()) return false;
    ::shutdown(socket_.get(), SHUT_WR);
    poller_.rewatch(socket_.get(), EPOLLIN, *this);
    return false;
  }

  bool hear() {
    char answer = 0;
    const ssize_t bytes = ::recv(socket_.get(), &answer, 1, MSG_DONTWAIT);
    if (bytes < 0) return errno != EAGAIN && errno != EINTR && fail();
    if (bytes == 1 && answer == kTaken)
      problem_.reset();
    else
      problem_ = "it does not expect the list";
    return true;
  }

  const int rank_;
  const std::string& text_;
  Poller& poller_;
  const Identity target_;
  Connector connector_;
  Fd socket_;
  size_t sent_ = 0;
  bool ready_ = false;
  Deadline patience_ = Deadline::after(MeshCourier::kPatience);
  std::optional<std::string> problem_{"there was no time for it"};
};

}  // namespace

std::vector<int> roster_children(int rank, int size) {
  std::vector<int> children;
  for (int64_t next = int64_t{kFanOut} * rank + 1; next <= int64_t{kFanOut} * (rank + 1); ++next)
    if (next < size) children.push_back(static_cast<int>(next));
  return children;
}

std::map<int, std::string> MeshCourier::hand(const std::string& group, const std::string& list,
                                             const std::vector<RosterChild>& children,
                                             Deadline deadline) {
  const std::string text = group + '\n' + list;
  std::map<int, std::string> problems;
  Poller poller;
  std::list<Handing> open;
  for (const RosterChild& child : children) open.emplace_back(local_, self_, child, text, poller);
  const auto over = [&](const Handing& one) {
    if (one.problem()) problems.emplace(one.rank(), *one.problem());
  };
  while (!open.empty() && !deadline.expired()) {
    Deadline next = deadline;
    open.remove_if([&](Handing& one) {
      const bool ended = one.step();
      if (ended)
        over(one);
      else
        next = earliest(next, one.next_timer());
      return ended;
    });
    if (!open.empty()) poller.sleep(next);
  }
  std::ranges::for_each(open, over);
  return problems;
}

// A connection on which a list arrives.
struct RosterInbox::Bearer final : Pollable {
  Bearer(Fd the_socket, Poller& the_poller) : socket(std::move(the_socket)), poller(the_poller) {
    poller.watch(socket.get(), EPOLLIN, *this);
  }
  ~Bearer() override { poller.forget(socket.get()); }
  void ready(unsigned) override {
    std::array<char, 65536> piece;
    while (text.size() <= kMostBytes) {
      const ssize_t bytes = ::recv(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
      ended = true;
      whole = bytes == 0;
      if (bytes <= 0) return;
      ended = false;
      text.append(piece.data(), static_cast<size_t>(bytes));
    }
    ended = true;
  }

  const Fd socket;
  Poller& poller;
  std::string text;
  bool ended = false, whole = false;
};

RosterInbox::RosterInbox() = default;
RosterInbox::~RosterInbox() = default;

void RosterInbox::expect(const std::string& group) {
  std::lock_guard lock(mutex_);
  lists_.emplace(group, "");
  if (!poller_) poller_ = std::make_unique<Poller>();
}

void RosterInbox::forget(const std::string& group) {
  std::lock_guard lock(mutex_);
  lists_.erase(group);
  if (!lists_.empty()) return;
  // No thread reads: each expects a group.
  bearers_.clear();
  arrived_.clear();
  poller_.reset();
}

bool RosterInbox::expects() const {
  std::lock_guard lock(mutex_);
  return !lists_.empty() && arrived_.size() < kMostConnections;
}

void RosterInbox::take_in(Fd socket) {
  std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(socket));
  if (poller_) poller_->ring();
}

std::string RosterInbox::receive(const std::string& group, Deadline until) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = lists_.find(group);
    if (found == lists_.end() || !found->second.empty() || until.expired())
      return found == lists_.end() ? "" : std::exchange(found->second, "");
    if (std::exchange(reading_, true)) {
      changed_.wait_until(
          lock, std::min(until.time_point(), Deadline::Clock::now() + std::chrono::seconds(1)));
      continue;
    }
    while (!arrived_.empty() && bearers_.size() < kMostConnections) {
      bearers_.push_back(std::make_unique<Bearer>(std::move(arrived_.front()), *poller_));
      arrived_.pop_front();
    }
    lock.unlock();
    std::exception_ptr error;
    try {
      read_some(until);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    reading_ = false;
    changed_.notify_all();
    if (error) std::rethrow_exception(error);
  }
}

void RosterInbox::read_some(Deadline until) {
  poller_->sleep(until);
  std::erase_if(bearers_, [&](const auto& one) {
    if (!one->ended) return false;
    if (one->whole && keep(one->text))
      (void)!::send(one->socket.get(), &kTaken, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    return true;
  });
}

// False if no group expects this list.
bool RosterInbox::keep(std::string_view text) {
  const size_t end = text.substr(0, kLongestGroup).find('\n');
  if (end == std::string_view::npos) return false;
  std::lock_guard lock(mutex_);
  const auto found = lists_.find(std::string(text.substr(0, end)));
  if (found == lists_.end()) return false;
  found->second = text.substr(end + 1);
  return true;
}

}  // namespace hccl_like

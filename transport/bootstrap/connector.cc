#include "transport/bootstrap/connector.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/base/error.h"

namespace hccl_like {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{1000};
// Time without an answer after which another port of the host is tried, and time for that answer.
constexpr milliseconds kNoAnswerFor{1000}, kElsewhere{300};
// A port at which no program listens: a host that is up refuses a connection to it at once.
constexpr uint16_t kUnusedPort = 1;

// Begins to connect; 0, or why it cannot. `socket` stays empty if the system gives none.
int begin_connecting(Fd& socket, const sockaddr_storage& address, const Way& way) {
  socket.reset(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno;
  if (way.prepare) way.prepare(socket.get());
  const int result =
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), way.length);
  // After EINTR the connection continues, as after EINPROGRESS. A UNIX socket gives EAGAIN without
  // connecting if the peer's queue is full.
  return result == 0 || errno == EINPROGRESS || errno == EINTR ? 0 : errno;
}

}  // namespace

struct Connector::Attempt {
  Way way;
  std::optional<OutgoingGreeting> greeting;
  Clock::time_point start_at;
  milliseconds pause = kFirstPause;
  std::string last_cause;
  bool refused = false;
  Clock::time_point started;
  Fd elsewhere;  // a connection to another port of a host that does not answer
  Clock::time_point looked_at;
  bool host_answers = false;  // there, if only to refuse the connection

  bool is_silent() const {
    return greeting && greeting->state() == OutgoingGreeting::State::kConnecting;
  }
  bool wants_look() const {
    return is_silent() && way.address.ss_family != AF_UNIX && looked_at == Clock::time_point{};
  }
  void look_elsewhere();
  void hear_elsewhere(Clock::time_point now);
  std::string verdict() const;
};

void Connector::Attempt::look_elsewhere() {
  sockaddr_storage other = way.address;
  if (other.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(other).sin6_port = htons(kUnusedPort);
  else
    reinterpret_cast<sockaddr_in&>(other).sin_port = htons(kUnusedPort);
  looked_at = Clock::now();
  if (begin_connecting(elsewhere, other, way) != 0) elsewhere.reset();
}

// Listens for a moment only, so that a host that stays silent costs no system call in each step.
void Connector::Attempt::hear_elsewhere(Clock::time_point now) {
  pollfd one{elsewhere.get(), POLLOUT, 0};
  int error = 0;
  socklen_t length = sizeof error;
  const bool over = ::poll(&one, 1, 0) > 0;
  if (over && ::getsockopt(elsewhere.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0)
    host_answers = error == 0 || error == ECONNREFUSED;
  if (over || now - looked_at >= kElsewhere) elsewhere.reset();
}

// What follows from the last error of the attempt, in brackets.
std::string Connector::Attempt::verdict() const {
  if (last_cause == errno_text(ECONNREFUSED) && way.address.ss_family != AF_UNIX)
    return " (the host is up, and no process listens at this port)";
  if (last_cause == errno_text(ENETUNREACH)) return " (no interface of this host leads there)";
  if (last_cause == errno_text(EHOSTUNREACH))
    return " (no host has this address in that network, or it is down)";
  if (!last_cause.empty() || looked_at == Clock::time_point{}) return "";
  if (host_answers)
    return " (a firewall drops this port: the host answers at another one; hccl-like fwports "
           "prints the rules that let it in)";
  if (Clock::now() - looked_at < kElsewhere) return "";
  return " (nor at another port: the host is down, its network is another one, or a firewall drops "
         "everything)";
}

Way way_to(const Address& address, uint16_t port) {
  Way way;
  way.label = with_port(address, port);
  way.length = address.with_port(port, way.address);
  return way;
}

Way way_to_unix(const std::string& abstract_name) {
  Way way;
  way.label = "shm";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(abstract_name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, abstract_name.data(), bytes);
  std::memcpy(&way.address, &address, sizeof address);
  way.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return way;
}

Connector::Connector(const Identity& self, const Identity& target, std::vector<Way> ways,
                     Poller& poller, size_t rail, milliseconds stagger)
    : self_(self), target_(target), poller_(poller), rail_(rail) {
  auto start_at = Clock::now();
  for (Way& way : ways) {
    attempts_.push_back(std::make_unique<Attempt>());
    attempts_.back()->way = std::move(way);
    attempts_.back()->start_at = start_at;
    start_at += stagger;
  }
}

Connector::~Connector() = default;

bool Connector::step() {
  if (connected_) return true;
  const auto now = Clock::now();
  for (auto& attempt : attempts_) {
    if (winner_ != nullptr && winner_ != attempt.get()) continue;
    if (!attempt->greeting && attempt->start_at <= now) start(*attempt);
    if (attempt->greeting) advance(*attempt);
    if (connected_) return true;
    if (attempt->elsewhere.valid()) attempt->hear_elsewhere(now);
    if (attempt->wants_look() && now - attempt->started >= kNoAnswerFor) attempt->look_elsewhere();
  }
  return false;
}

void Connector::start(Attempt& attempt) {
  Fd socket;
  if (const int why = begin_connecting(socket, attempt.way.address, attempt.way); why != 0) {
    attempt.refused = socket.valid() && why != EAGAIN;
    return lost(attempt, errno_text(why));
  }
  attempt.started = Clock::now();
  attempt.looked_at = {};
  attempt.host_answers = false;
  attempt.greeting.emplace(std::move(socket), self_, target_, rail_, poller_);
}

void Connector::advance(Attempt& attempt) {
  switch (attempt.greeting->step()) {
    case OutgoingGreeting::State::kVerified:
      return pick(attempt);
    case OutgoingGreeting::State::kWelcome:
      connected_ = true;
      winner_ = &attempt;
      taken_ = attempt.way.label;
      return;
    case OutgoingGreeting::State::kFailed:
      attempt.refused = true;
      return lost(attempt, attempt.greeting->cause());
    default:
      return;
  }
}

void Connector::pick(Attempt& attempt) {
  winner_ = &attempt;
  attempt.greeting->commit();
  for (auto& other : attempts_)
    if (other.get() != winner_) other->greeting.reset();
}

void Connector::lost(Attempt& attempt, std::string cause) {
  const auto now = Clock::now();
  attempt.last_cause = std::move(cause);
  attempt.greeting.reset();
  attempt.start_at = now + attempt.pause;
  attempt.pause = std::min(2 * attempt.pause, kLongestPause);
  if (winner_ == &attempt) winner_ = nullptr;
  // Start the attempts that wait for their turn now.
  for (auto& other : attempts_)
    if (!other->greeting && other->last_cause.empty())
      other->start_at = std::min(other->start_at, now);
}

Key Connector::session() const { return winner_->greeting->session(); }

Fd Connector::take() { return winner_->greeting->release(); }

bool Connector::hopeless() const {
  return std::all_of(attempts_.begin(), attempts_.end(),
                     [](const auto& attempt) { return attempt->refused; });
}

bool Connector::nobody_listens() const {
  const std::string refused = errno_text(ECONNREFUSED);
  return !attempts_.empty() && std::ranges::all_of(attempts_, [&](const auto& attempt) {
    return attempt->last_cause == refused;
  });
}

bool Connector::is_refused_by(std::string_view address) const {
  const std::string refused = errno_text(ECONNREFUSED);
  return std::ranges::any_of(attempts_, [&](const auto& attempt) {
    const std::string_view label = attempt->way.label;
    return attempt->last_cause == refused && label.substr(0, label.rfind(':')) == address;
  });
}

bool Connector::is_answered() const {
  return std::ranges::any_of(attempts_, [](const auto& attempt) {
    return attempt->greeting &&
           attempt->greeting->state() != OutgoingGreeting::State::kConnecting &&
           attempt->greeting->state() != OutgoingGreeting::State::kFailed;
  });
}

std::string Connector::report() const {
  std::string text;
  for (const auto& attempt : attempts_) {
    if (!text.empty()) text += "; ";
    text += attempt->way.label + ": " +
            (attempt->last_cause.empty() ? "no answer" : attempt->last_cause) + attempt->verdict();
  }
  return text;
}

Deadline Connector::next_timer() const {
  Deadline next = Deadline::never();
  for (const auto& attempt : attempts_) {
    if (!attempt->greeting && (winner_ == nullptr || winner_ == attempt.get()))
      next = earliest(next, Deadline::at(attempt->start_at));
    if (attempt->wants_look()) next = earliest(next, Deadline::at(attempt->started + kNoAnswerFor));
  }
  return next;
}

}  // namespace hccl_like

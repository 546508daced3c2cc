#include "transport/metrics/metrics_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/own_thread.h"
#include "transport/metrics/metrics_text.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRewrite{15'000};
constexpr milliseconds kRequestLimit{2'000};
constexpr size_t kMostRequestBytes = 8192;

// "/var/lib/node_exporter/job.prom" of local rank 2 is ".../job.2.prom".
std::string file_of(const std::string& path, int local_rank) {
  const std::string_view ending = MetricsTarget::kFileEnding;
  return path.substr(0, path.size() - ending.size()) + "." + std::to_string(local_rank) +
         std::string(ending);
}

Listener listen_for(const MetricsTarget& target, int local_rank) {
  const auto address = Address::parse(target.address);
  const int port = target.port + local_rank;
  if (!address || port > 65535) throw_misuse(target.to_string() + " gives no port to listen at");
  const auto own = static_cast<uint16_t>(port);
  try {
    return Listener::tcp(*address, PortRange{own, own});
  } catch (const Exception&) {
    throw_error(ErrorCode::kSystem,
                "cannot listen at " + with_port(*address, own) +
                    ": the port is taken, or the address is not this host's. Each process of a "
                    "host needs a port: the one that is set plus LOCAL_RANK");
  }
}

std::string response(std::string_view status, std::string_view type, std::string_view content) {
  std::string all = "HTTP/1.1 ";
  all.append(status).append("\r\nContent-Type: ").append(type).append("\r\nContent-Length: ");
  all.append(std::to_string(content.size())).append("\r\nConnection: close\r\n\r\n");
  return all.append(content);
}

}  // namespace

MetricsServer::MetricsServer(const MetricsTarget& target, int local_rank,
                             std::shared_ptr<const CounterFile> counters)
    : counters_(std::move(counters)), stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_.valid()) throw_system("cannot serve metrics (eventfd)");
  if (!target.file.empty()) {
    where_ = file_ = file_of(target.file, local_rank);
    write();
    thread_ = own_thread("writes metrics", [this] { rewrite(); });
  } else {
    listener_ = std::make_unique<Listener>(listen_for(target, local_rank));
    where_ = with_port(*Address::parse(target.address), listener_->port());
    thread_ = own_thread("serves metrics", [this] { serve(); });
  }
}

MetricsServer::~MetricsServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto told = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
  if (!file_.empty()) ::unlink(file_.c_str());  // nobody takes it for a running job's
}

std::string MetricsServer::text() const {
  const auto now = steady_clock::now().time_since_epoch();
  return metrics_text(counters_->contents(),
                      static_cast<uint64_t>(std::chrono::nanoseconds(now).count()));
}

MetricsServer::Event MetricsServer::wait(int fd, short events, Deadline deadline) const {
  std::array<pollfd, 2> both{pollfd{stop_.get(), POLLIN, 0}, pollfd{fd, events, 0}};
  const int ready = ::poll(both.data(), both.size(), deadline.remaining());
  if (both[0].revents != 0) return Event::kStop;
  return ready > 0 ? Event::kReady : Event::kTimeout;
}

void MetricsServer::serve() const {
  while (true) {
    const Event event = wait(listener_->fd(), POLLIN, Deadline::never());
    if (event == Event::kStop) return;
    if (event == Event::kTimeout) continue;
    if (const Arrival arrival = listener_->accept(); arrival.socket.valid())
      answer(arrival.socket.get());
  }
}

void MetricsServer::answer(int client) const {
  constexpr std::string_view kPlain = "text/plain; charset=utf-8";
  const Deadline deadline = Deadline::after(kRequestLimit);
  const std::string request = request_of(client, deadline);
  if (request.empty()) return;
  const bool gets = request.starts_with("GET ");
  const std::string_view path = std::string_view(request).substr(gets ? 4 : 0);
  if (!gets)
    send(client, response("405 Method Not Allowed", kPlain, "only GET is answered\n"), deadline);
  else if (path.starts_with("/metrics ") || path.starts_with("/metrics?"))
    send(client, response("200 OK", "text/plain; version=0.0.4; charset=utf-8", text()), deadline);
  else
    send(client, response("404 Not Found", kPlain, "the metrics are at /metrics\n"), deadline);
}

// The request up to its empty line; empty if it does not come in time or is too long.
std::string MetricsServer::request_of(int client, Deadline deadline) const {
  std::string request;
  std::array<char, 1024> piece;
  while (request.find("\r\n\r\n") == std::string::npos) {
    if (request.size() > kMostRequestBytes) return {};
    if (wait(client, POLLIN, deadline) != Event::kReady) return {};
    const ssize_t bytes = ::recv(client, piece.data(), piece.size(), MSG_DONTWAIT);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) return {};
    if (bytes > 0) request.append(piece.data(), static_cast<size_t>(bytes));
  }
  return request;
}

void MetricsServer::send(int client, std::string_view all, Deadline deadline) const {
  while (!all.empty()) {
    if (wait(client, POLLOUT, deadline) != Event::kReady) return;
    const ssize_t bytes = ::send(client, all.data(), all.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (bytes < 0 && errno != EAGAIN && errno != EINTR) return;
    if (bytes > 0) all.remove_prefix(static_cast<size_t>(bytes));
  }
}

// A reader never sees a part of the file.
void MetricsServer::write() const {
  const std::string beside = file_ + ".new";
  const Fd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) throw_system("cannot write " + beside);
  const std::string all = text();
  for (std::string_view rest = all; !rest.empty();) {
    const ssize_t bytes = ::write(fd.get(), rest.data(), rest.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) throw_system("cannot write " + beside);
    rest.remove_prefix(static_cast<size_t>(bytes));
  }
  if (::rename(beside.c_str(), file_.c_str()) != 0) throw_system("cannot rename " + beside);
}

// A full disk may have room again later.
void MetricsServer::rewrite() const {
  bool told = false;
  while (wait(-1, 0, Deadline::after(kRewrite)) != Event::kStop) {
    try {
      write();
    } catch (const Exception& error) {
      if (!std::exchange(told, true)) log_warn(std::string("metrics: ") + error.what());
    }
  }
}

}  // namespace hccl_like

#include "transport/mesh/counters.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "transport/bootstrap/connector.h"
#include "transport/bootstrap/dialer.h"
#include "transport/bootstrap/lifeline.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr const char* kCountersLabel = "hccl-like counters";
constexpr size_t kAskedAtOnce = 64;
constexpr size_t kMostCounterBytes = 1 << 20;
constexpr milliseconds kCountersGlance{20};  // between two looks whether to stop

// One rank that is asked.
class Question {
 public:
  Question(const LocalEnd& local, const ProcessRecord& self, const RankRecord& asked,
           Poller& poller)
      : rank_(asked.rank),
        host_(asked.record.hostname),
        target_(local.identity_of(asked.record)),
        connector_(local.identity, target_, ways(local, self, asked.record), poller,
                   kCountersRail) {}

  // True once it is over.
  bool step() {
    if (!socket_.valid()) {
      if (connector_.nobody_listens()) return true;
      if (!connector_.step()) return false;
      session_ = connector_.session();
      socket_ = connector_.take();
    }
    return read();
  }

  RankCounters result() const {
    RankCounters told{rank_, host_, {}, {}};
    const std::string_view all = received_;
    if (ended_ && all.size() > kTagBytes &&
        session_.proves(all.substr(0, kTagBytes), kCountersLabel, {all.substr(kTagBytes)}))
      told.content = all.substr(kTagBytes);
    else
      told.problem = socket_.valid() ? "its answer is not whole" : connector_.report();
    return told;
  }

 private:
  static std::vector<Way> ways(const LocalEnd& local, const ProcessRecord& self,
                               const ProcessRecord& peer) {
    auto ways = local.tcp_ways(self, peer, listening_port(peer), 0);
    for (Way& way : ways) way.prepare = nullptr;  // which is for connections with much to carry
    return ways;
  }

  bool read() {
    std::array<char, 16384> piece;
    while (received_.size() <= kMostCounterBytes) {
      const ssize_t bytes = ::recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (bytes < 0) return errno != EAGAIN && errno != EINTR;
      if (bytes == 0) return ended_ = true;
      received_.append(piece.data(), static_cast<size_t>(bytes));
    }
    return true;
  }

  const int rank_;
  const std::string host_;
  const Identity target_;
  Connector connector_;
  Key session_;
  Fd socket_;
  std::string received_;
  bool ended_ = false;
};

}  // namespace

std::vector<RankCounters> counters_of(const LocalEnd& local, const ProcessRecord& self,
                                      const std::vector<RankRecord>& ranks, Deadline deadline,
                                      const std::atomic<bool>& stop) {
  Poller poller;
  std::vector<RankCounters> told;
  std::list<Question> open;
  auto next = ranks.begin();
  while (!stop && !deadline.expired() && (next != ranks.end() || !open.empty())) {
    while (next != ranks.end() && open.size() < kAskedAtOnce)
      open.emplace_back(local, self, *next++, poller);
    open.remove_if([&](Question& one) {
      if (!one.step()) return false;
      told.push_back(one.result());
      return true;
    });
    // An answer may come on a socket that the poller does not watch: a glance is short.
    if (!open.empty()) poller.sleep(earliest(deadline, Deadline::after(kCountersGlance)));
  }
  for (const Question& one : open) told.push_back(one.result());
  for (; next != ranks.end(); ++next)
    told.push_back({next->rank, next->record.hostname, {}, "not asked yet, others came first"});
  std::ranges::sort(told, {}, &RankCounters::rank);
  return told;
}

void tell_counters(int socket, const Key& session, const std::string& content) {
  // The whole answer fits into the buffer, so nothing has to be kept until the peer reads.
  const int bytes = static_cast<int>(kMostCounterBytes);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  const std::string all = session.tag(kCountersLabel, {content}) + content;
  [[maybe_unused]] const auto sent =
      ::send(socket, all.data(), all.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace hccl_like

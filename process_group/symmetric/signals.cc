#include "process_group/symmetric/signals.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

#include "process_group/symmetric/process_identity.h"

namespace hccl_like {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free, "the words are shared by processes");

constexpr std::chrono::milliseconds kLookForPeer{
    50};  // interval at which a waiter checks that its peer is alive
constexpr int kEagerLooks = 200;

void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, Deadline deadline) {
  using namespace std::chrono;
  const auto left = duration_cast<nanoseconds>(
      std::min(deadline, Deadline::after(kLookForPeer)).time_point() - Deadline::Clock::now());
  const timespec wait{.tv_sec = 0, .tv_nsec = std::max<int64_t>(left.count(), 0)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &wait, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// "rank 3", "ranks 1, 2 and 5".
std::string ranks_in_words(const std::vector<int>& ranks) {
  std::ostringstream out;
  out << (ranks.size() == 1 ? "rank " : "ranks ");
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) out << (i + 1 == ranks.size() ? " and " : ", ");
    out << ranks[i];
  }
  return out.str();
}

}  // namespace

// All zeros mean no failure and no members.
struct Signals::Header {
  enum : uint32_t { kNone, kBeingWritten, kTold };
  Word failed;
  int32_t rank;
  int32_t peer;
  uint32_t code;
  std::array<char, 496> reason;
};

struct Signals::Member {
  Word left;
  ProcessIdentity process;
};

size_t Signals::bytes(int ranks, int channels) {
  const auto count = static_cast<size_t>(ranks);
  return sizeof(Header) + count * sizeof(Member) +
         count * count * static_cast<size_t>(channels) * sizeof(Word);
}

Signals::Signals(SharedMemory memory, std::string group, int rank, int ranks, int channels)
    : memory_(std::move(memory)),
      group_(std::move(group)),
      rank_(rank),
      ranks_(ranks),
      channels_(channels) {
  if (memory_.size() < bytes(ranks, channels))
    throw_error(ErrorCode::kMismatch, "the ranks do not agree about the size of the signal pad");
  member(rank_).process = ProcessIdentity::own();
}

Signals::Header& Signals::header() const { return *reinterpret_cast<Header*>(memory_.data()); }

Signals::Member& Signals::member(int rank) const {
  return reinterpret_cast<Member*>(memory_.data() + sizeof(Header))[rank];
}

Signals::Word& Signals::word(int receiver, int channel, int sender) const {
  auto* const words = reinterpret_cast<Word*>(memory_.data() + sizeof(Header) +
                                              static_cast<size_t>(ranks_) * sizeof(Member));
  const auto index = (static_cast<size_t>(receiver) * static_cast<size_t>(channels_) +
                      static_cast<size_t>(channel)) *
                         static_cast<size_t>(ranks_) +
                     static_cast<size_t>(sender);
  return words[index];
}

Signals::Outcome Signals::turn(Word& word, uint32_t from, uint32_t to, int peer,
                               Deadline deadline) const {
  for (int look = 0;; ++look) {
    uint32_t seen = from;
    if (word.compare_exchange_strong(seen, to, std::memory_order_acq_rel)) {
      wake_all(word);
      return Outcome::kDone;
    }
    if (header().failed.load(std::memory_order_acquire) == Header::kTold) return Outcome::kFailed;
    if (deadline.expired()) return Outcome::kExpired;
    if (look < kEagerLooks) {
      std::this_thread::yield();
      continue;
    }
    const bool gone = is_gone(peer);
    // Reads the word once more: the peer may have signalled before it exited.
    if (gone && word.load(std::memory_order_acquire) != from) return Outcome::kGone;
    if (!gone) sleep_on(word, seen, deadline);
  }
}

std::optional<Error> Signals::put(int receiver, int channel, Deadline deadline) {
  if (auto known = failure()) return known;
  const Outcome outcome = turn(word(receiver, channel, rank_), 0, 1, receiver, deadline);
  if (outcome == Outcome::kDone) return std::nullopt;
  return fail(outcome,
              "put_signal on channel " + std::to_string(channel) +
                  " (an earlier signal has not been waited for)",
              {receiver});
}

std::optional<Error> Signals::wait(int sender, int channel, Deadline deadline) {
  if (auto known = failure()) return known;
  const Outcome outcome = turn(word(rank_, channel, sender), 1, 0, sender, deadline);
  if (outcome == Outcome::kDone) return std::nullopt;
  return fail(outcome, "wait_signal on channel " + std::to_string(channel), {sender});
}

std::optional<Error> Signals::barrier(int channel, Deadline deadline) {
  if (auto known = failure()) return known;
  std::vector<int> missing;
  const auto all = [&](auto&& turn_of) -> std::optional<Error> {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      const Outcome outcome = turn_of(peer);
      if (outcome == Outcome::kExpired) {
        missing.push_back(peer);  // the deadline has passed: only polls the others
      } else if (outcome != Outcome::kDone) {
        return fail(outcome, "barrier on channel " + std::to_string(channel), {peer});
      }
    }
    if (missing.empty()) return std::nullopt;
    return fail(Outcome::kExpired, "barrier on channel " + std::to_string(channel), missing);
  };
  if (auto error =
          all([&](int peer) { return turn(word(peer, channel, rank_), 0, 1, peer, deadline); }))
    return error;
  return all([&](int peer) { return turn(word(rank_, channel, peer), 1, 0, peer, deadline); });
}

Error Signals::fail(Outcome outcome, const std::string& attempt, const std::vector<int>& peers) {
  if (auto first = failure()) return *first;
  const bool expired = outcome == Outcome::kExpired;
  const std::string reason = attempt +
                             (expired ? ": timed out waiting for " : ": the process of ") +
                             ranks_in_words(peers) + (expired ? "" : " has ended");
  Header& head = header();
  uint32_t none = Header::kNone;
  if (head.failed.compare_exchange_strong(none, Header::kBeingWritten)) {
    head.rank = rank_;
    head.peer = peers.front();
    head.code = static_cast<uint32_t>(expired ? ErrorCode::kTimeout : ErrorCode::kPeerLost);
    reason.copy(head.reason.data(), head.reason.size() - 1);
    head.failed.store(Header::kTold, std::memory_order_release);
  }
  // Another rank may be writing its failure now. If it dies meanwhile, report ours locally.
  for (int look = 0; look < kEagerLooks; ++look) {
    if (auto first = failure()) return *first;
    std::this_thread::yield();
  }
  return {ErrorCode::kPeerLost, reason, peers.front()};
}

std::optional<Error> Signals::failure() const {
  const Header& head = header();
  if (head.failed.load(std::memory_order_acquire) != Header::kTold) return std::nullopt;
  return Error{static_cast<ErrorCode>(head.code),
               "symmetric memory of group '" + group_ + "' failed on rank " +
                   std::to_string(head.rank) + ": " +
                   std::string(head.reason.data(), strnlen(head.reason.data(), head.reason.size())),
               head.peer};
}

bool Signals::is_gone(int rank) const { return rank != rank_ && !member(rank).process.lives(); }

void Signals::leave() { member(rank_).left.store(1, std::memory_order_release); }

bool Signals::others_left() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    if (member(rank).left.load(std::memory_order_acquire) == 0 && !is_gone(rank)) return false;
  }
  return true;
}

}  // namespace hccl_like

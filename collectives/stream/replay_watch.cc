#include "collectives/stream/replay_watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/engine/engine.h"
#include "core/base/log.h"
#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenReplayLooks{10};
// In a group that has failed: streams of others may still write words that were released.
constexpr std::chrono::milliseconds kBetweenReleases{1};
// How long a replay may last after its waits are released, or after a rank has left.
constexpr std::chrono::seconds kReplayPatience{5};

}  // namespace

ReplayWatch::ReplayWatch(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)),
      thread_(own_thread("watches captured calls", [this] { run(); })) {}

ReplayWatch::~ReplayWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReplayWatch::add(CapturedWords words, std::chrono::milliseconds timeout,
                      std::string description) {
  std::lock_guard lock(mutex_);
  calls_.push_back({words, timeout, std::move(description)});
}

void ReplayWatch::run() {
  std::optional<Clock::time_point> failed;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool running = look();
    if (stopping_ && !running) return;
    if (communicator_->has_failed() && !failed) failed = Clock::now();
    if (stopping_ && failed && Clock::now() - *failed > kReplayPatience)
      return log_warn("a replay of a closed group does not come to its end");
    changed_.wait_for(lock, failed || stopping_ ? kBetweenReleases : kBetweenReplayLooks,
                      [this, was = stopping_] { return stopping_ && !was; });
  }
}

// Whether a replay runs here.
bool ReplayWatch::look() {
  bool running = false, lasts = false;
  for (Watched& one : calls_) {
    if (!look_at(one)) continue;
    running = true;
    lasts = lasts || Clock::now() - one.since > kReplayPatience;
  }
  if (!communicator_->has_failed()) look_for_lost(lasts);
  if (communicator_->has_failed())
    for (const Watched& one : calls_) {
      const auto ranks = static_cast<size_t>(communicator_->size());
      for (size_t word = 0; word < 2 * ranks; ++word)
        if (word != static_cast<size_t>(communicator_->rank()))
          one.at.words->release(one.at.first + word, 1);
    }
  return running;
}

bool ReplayWatch::look_at(Watched& one) const {
  auto* const word = const_cast<uint64_t*>(
      one.at.words->own(one.at.first + static_cast<size_t>(communicator_->rank())));
  uint64_t state = kRuns;
  if (__atomic_compare_exchange_n(word, &state, kSeen, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    one.since = Clock::now();
  else if (state == kSeen && Clock::now() - one.since > one.timeout && !communicator_->has_failed())
    expire(one);
  return state != 0;
}

// Drives the engine one step, in which it hears of ranks that gave the group up.
void ReplayWatch::look_for_lost(bool lasts) const {
  std::optional<std::pair<int, Error>> lost;
  communicator_->engine().run([&] {
    for (int peer = 0; peer < communicator_->size() && !lost; ++peer) {
      Link* const link = communicator_->links()[static_cast<size_t>(peer)];
      if (link == nullptr) continue;
      link->look_for_end();
      const PeerCommons* const commons = link->commons();
      if (commons != nullptr && commons->owner_died())  // at once, before its connection tells
        lost.emplace(peer, Error{ErrorCode::kPeerLost, "its process ended"});
      // A rank that leaves in good order has made its part of all replays, as a rule.
      else if (link->failure() != nullptr && (lasts || !link->peer_said_goodbye()))
        lost.emplace(peer, *link->failure());
    }
  });
  if (!lost) return;
  const auto& [peer, why] = *lost;
  fail(why.code,
       " lost rank " + std::to_string(communicator_->number_of(peer)) + " (" +
           communicator_->members()[static_cast<size_t>(peer)].hostname +
           "), with which graphs have captured calls: " + why.message,
       peer);
}

void ReplayWatch::expire(const Watched& one) const {
  // A replay ends only when all ranks have begun theirs.
  std::string missing;
  for (int peer = 0; peer < communicator_->size(); ++peer) {
    const auto* const word = const_cast<const uint64_t*>(
        one.at.words->of(peer, one.at.first + static_cast<size_t>(peer)));
    if (word == nullptr || __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(communicator_->number_of(peer));
  }
  fail(ErrorCode::kTimeout,
       ": a replay of " + one.description + " reached its timeout after " +
           std::to_string(one.timeout.count()) + " ms" +
           (missing.empty() ? std::string() : ", waiting for rank " + missing) +
           ". Did every rank replay its graph, and is every rank alive?",
       -1);
}

void ReplayWatch::fail(ErrorCode code, const std::string& what, int peer) const {
  Error error{code, self() + what};
  error.peer = communicator_->number_of(peer);
  communicator_->engine().abort(*communicator_, std::move(error));
}

std::string ReplayWatch::self() const {
  return "rank " + std::to_string(communicator_->number_of(communicator_->rank())) + " of group " +
         communicator_->name();
}

}  // namespace hccl_like

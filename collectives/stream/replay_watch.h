#pragma once
// Watches the calls of a group that graphs of the device captured.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/stream/shared_words.h"

namespace hccl_like {

// The words of a captured call in the block of each rank: the copies of all ranks' words, then of
// their second words (stream_program.h).
struct CapturedWords {
  SharedWords* words = nullptr;
  size_t first = 0;
};

// No host thread takes part in a replay, so a thread of the group looks at the calls from time to
// time. It aborts the group if a rank is lost or a call does not come to its end within its
// timeout. If the group has failed, it ends the waits of this rank's replays, those of later
// replays, too. Any thread.
class ReplayWatch {
 public:
  // Throws kSystem without a thread.
  explicit ReplayWatch(std::shared_ptr<Communicator> communicator);
  // Waits until no replay of a call runs here.
  ~ReplayWatch();
  ReplayWatch(const ReplayWatch&) = delete;
  ReplayWatch& operator=(const ReplayWatch&) = delete;

  // Values of this rank's copy of its own word, which no program uses. The stream writes kRuns when
  // a replay begins and 0 when it ends; the watch replaces kRuns by kSeen. A word that stays kSeen
  // belongs to one long replay.
  static constexpr uint64_t kRuns = 1, kSeen = 2;

  void add(CapturedWords words, std::chrono::milliseconds timeout, std::string description);

 private:
  struct Watched {
    CapturedWords at;
    std::chrono::milliseconds timeout;
    std::string description;
    std::chrono::steady_clock::time_point since{};  // with kSeen
  };

  void run();
  bool look();
  bool look_at(Watched& one) const;
  void look_for_lost(bool lasts) const;
  void expire(const Watched& one) const;
  void fail(ErrorCode code, const std::string& what, int peer) const;
  std::string self() const;

  const std::shared_ptr<Communicator> communicator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched> calls_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hccl_like

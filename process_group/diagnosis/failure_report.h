#pragma once
// What is done once a call of a group has failed, so that people learn why.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/error.h"
#include "process_group/diagnosis/call_sites.h"
#include "process_group/diagnosis/flight_recorder.h"
#include "process_group/diagnosis/report.h"

namespace hccl_like {

// Of one group; its calls that run and threads that are on their way keep it alive. Any thread,
// without the interpreter's lock.
class FailureReport : public std::enable_shared_from_this<FailureReport> {
 public:
  struct Group {
    uint64_t id = 0;  // the same on all ranks
    int rank = 0;
    int size = 1;
    std::chrono::milliseconds timeout{};
  };
  // `recorder` lives as long as the process. Through the store ranks tell each other where they
  // are.
  FailureReport(FlightRecorder& recorder, const Config& config,
                const c10::intrusive_ptr<c10d::Store>& store, const Group& group);

  // Once the group is named.
  void set_view(std::shared_ptr<const GroupView> view);

  // For every call, by the thread that makes it, with no lock held.
  void note(Issue& issue) {
    // Approximate where several threads make calls: it is only looked at for whether it moves.
    calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (sites_) sites_->note(issue);
  }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Returns the error with what more became known. Writes the flight recorder and torchrun's error
  // file; after a time-out ranks tell each other where they are, and one of them logs the table,
  // for which it blocks up to a second or so (HCCL_LIKE_REPORT_MS). All that once for a group, and
  // not for an abort() of one's own.
  Error after(Error error);
  // With HCCL_LIKE_CALL_SITES the error with the lines of the program in it; asks the store for
  // those of other ranks.
  Error named(Error error);

  // --- by the Watchdog ---
  const Group& group() const { return group_; }
  // How many calls this rank has made.
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  // Null if ranks don't tell each other anything, or could not be asked by it.
  c10::intrusive_ptr<c10d::Store> asked_through() const;
  // Another rank wants to know where this one is: tells it, on a thread of its own.
  void answer();
  // The last question in a store, and which group the n-th was about; nothing if that is not known
  // yet.
  static int64_t questions(c10d::Store& store);
  static std::optional<uint64_t> question(c10d::Store& store, int64_t number);
  // ---

 private:
  std::string key(const std::string& what) const;
  void put(const RankReport& report);
  std::optional<RankReport> get(int rank);
  RankReport own_report(const std::string& error);
  void ask();
  void meet(const std::string& error);
  void collect(const RankReport& own, std::chrono::steady_clock::time_point until);
  void within(std::chrono::milliseconds limit, std::function<void(FailureReport&)> work);

  FlightRecorder& recorder_;
  const std::chrono::milliseconds limit_;
  const Group group_;
  c10::intrusive_ptr<c10d::Store> store_;   // null: ranks don't tell each other anything
  const std::unique_ptr<CallSites> sites_;  // null without HCCL_LIKE_CALL_SITES
  std::atomic<uint64_t> calls_{0};
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<bool> met_{false};
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<const GroupView> view_;
};

}  // namespace hccl_like

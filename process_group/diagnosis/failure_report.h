#pragma once
// Failure report of a group: diagnosis after a failed call.
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

// For one group. Running calls and helper threads share ownership. Any thread, without the GIL.
class FailureReport : public std::enable_shared_from_this<FailureReport> {
 public:
  struct Group {
    uint64_t id = 0;  // same on all ranks
    int rank = 0;
    int size = 1;
    std::chrono::milliseconds timeout{};
  };
  // `recorder` lives as long as the process. Ranks exchange their state through `store`.
  FailureReport(FlightRecorder& recorder, const Config& config,
                const c10::intrusive_ptr<c10d::Store>& store, const Group& group);

  // Call once torch has named the group.
  void set_view(std::shared_ptr<const GroupView> view);

  // Call on the calling thread for every call, with no lock held.
  void note(Issue& issue) {
    // A racy increment is enough: readers only check whether the count changes.
    calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (sites_) sites_->note(issue);
  }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Adds details to the error. Once per group, except after a local abort(), writes the flight
  // recorder and torchrun's error file. After a timeout ranks exchange their state, which
  // blocks for up to HCCL_LIKE_REPORT_MS plus 300 ms. One rank logs the table. The error of every
  // rank names the missing ranks.
  Error after(Error error);
  // Adds program lines to the error (HCCL_LIKE_CALL_SITES), read from the store for up to 500 ms.
  Error named(Error error);

  // --- by the Watchdog ---
  const Group& group() const { return group_; }
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  // Store that the watchdog may poll; null without reports or if it is not a TCPStore.
  c10::intrusive_ptr<c10d::Store> asked_through() const;
  // Publishes this rank's state for another rank, on a separate thread.
  void answer();
  // Number of the last question in a store, and the group of a question (nothing until known).
  static int64_t questions(c10d::Store& store);
  static std::optional<uint64_t> question(c10d::Store& store, int64_t number);
  // ---

 private:
  std::string key(const std::string& what) const;
  void put(const RankReport& report);
  std::optional<RankReport> get(int rank);
  RankReport own_report(const std::string& error);
  void ask();
  std::string meet(const std::string& error);
  std::string collect(const RankReport& own, std::chrono::steady_clock::time_point until);
  std::string answered_within(std::chrono::milliseconds limit,
                              std::function<std::string(FailureReport&)> work);
  void within(std::chrono::milliseconds limit, std::function<void(FailureReport&)> work);

  FlightRecorder& recorder_;
  const std::chrono::milliseconds limit_;
  const Group group_;
  c10::intrusive_ptr<c10d::Store> store_;   // null: no exchange between ranks
  const std::unique_ptr<CallSites> sites_;  // null without HCCL_LIKE_CALL_SITES
  std::atomic<uint64_t> calls_{0};
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<bool> met_{false};
  std::mutex mutex_;  // guards the members below
  std::shared_ptr<const GroupView> view_;
};

}  // namespace hccl_like

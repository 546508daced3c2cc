#pragma once
// The entries of a new group in the store; the protocol of exchange.h.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/deadline.h"
#include "transport/mesh/roster_tree.h"
#include "transport/security/proved_store.h"

namespace hccl_like {

inline constexpr size_t kMarkDigits = 16;  // of a mark, and of a communicator's id
// Stands before an unproved record, which is kept for the error message.
inline constexpr char kUnproved = '!';
std::string why_unproved(const JobKey& job);

// All rounds except the last belong to dead processes. Used by one thread; blocks on the store.
class GroupEntries {
 public:
  // `courier`: null if every rank reads the list from the store. Throws kTimeout at the deadline,
  // from each function, and names the missing ranks. `mark`: of this process, 16 hexadecimal
  // digits; empty: random.
  GroupEntries(ProvedStore& store, RosterCourier* courier, int rank, int size,
               const std::string& record, Deadline deadline, std::string mark = {});
  ~GroupEntries();
  GroupEntries(const GroupEntries&) = delete;
  GroupEntries& operator=(const GroupEntries&) = delete;

  // Rank 0: collects all records and publishes the communicator id, all marks and all records.
  // Opens another round if a rank has given up meanwhile.
  proof::Opened lead();
  // All other ranks: waits for the round in which rank 0 has read this process's record.
  proof::Opened join();
  // With a courier: gives the list to this rank's children in the tree. Those of a child that does
  // not take it get it from this rank; the child itself reads the store after
  // RosterCourier::grace().
  void hand_down(const std::string& all);

 private:
  using Fetch = std::function<std::optional<proof::Opened>(Deadline until)>;
  class Collector;

  int64_t rounds() { return store_.add(prefix_ + "rounds", 0); }
  std::string below() const { return prefix_ + leader_ + "/"; }
  void follow(const std::string& leader);
  bool is_too_late_to_leave();
  std::string_view mark_in(std::string_view all) const;
  std::optional<std::string> meet_leader(int64_t round);
  ProcessRecord record_of(int rank);
  Fetch from_store(const std::string& key);
  Fetch from_tree();
  std::optional<proof::Opened> wait_in(int64_t round, const Fetch& fetch, Collector* records,
                                       const std::function<void()>& meanwhile);

  ProvedStore& store_;
  RosterCourier* const courier_;
  const std::string prefix_;
  const int rank_;
  const int size_;
  const std::string record_;
  std::string mark_;  // of this process; rank 0 has another one in each round
  const Deadline deadline_;
  const Deadline::Clock::time_point start_ = Deadline::Clock::now();
  std::string leader_;  // rank 0's mark in the round that this rank has joined
};

}  // namespace hccl_like

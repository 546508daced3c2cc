#pragma once
// Hands the list of a large group's ranks down a tree of ranks, over connections that are made for
// it. The store would have to send the whole list to every rank.
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "transport/network/process_record.h"
#include "transport/wire/poller.h"

namespace hccl_like {

struct LocalEnd;

// The connection index of such connections. Rails have smaller numbers.
inline constexpr size_t kRosterRail = 97;

// The ranks that get the list from `rank`, at most eight: the tree of a heap whose root is rank 0.
std::vector<int> roster_children(int rank, int size);

struct RosterChild {
  int rank;
  ProcessRecord record;
};

// Carries lists between the ranks of groups that meet. A group is named by rank 0's mark. Any
// thread; several groups may meet at once.
class RosterCourier {
 public:
  virtual ~RosterCourier() = default;
  // How long a list that the store has may take to come down the tree.
  virtual std::chrono::milliseconds grace() const { return std::chrono::milliseconds(20'000); }
  // Lists of this group are kept from now on until forget().
  virtual void expect(const std::string& group) = 0;
  virtual void forget(const std::string& group) = 0;
  // The group's list, untrusted; empty if none arrives until then.
  virtual std::string receive(const std::string& group, Deadline until) = 0;
  // Gives the list to all of `children` at once. Returns the ranks that did not take it, each with
  // the reason.
  virtual std::map<int, std::string> hand(const std::string& group, const std::string& list,
                                          const std::vector<RosterChild>& children,
                                          Deadline deadline) = 0;
};

// The lists that other processes bring. Any thread.
class RosterInbox {
 public:
  static constexpr size_t kMostConnections = 64;

  RosterInbox();
  ~RosterInbox();
  RosterInbox(const RosterInbox&) = delete;
  RosterInbox& operator=(const RosterInbox&) = delete;

  void expect(const std::string& group);
  void forget(const std::string& group);
  std::string receive(const std::string& group, Deadline until);
  // Whether any list is expected.
  bool expects() const;
  // An authenticated connection of a process that brings a list.
  void take_in(Fd socket);

 private:
  struct Bearer;
  void read_some(Deadline until);
  bool keep(std::string_view text);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> lists_;  // of expected groups; empty: not here yet
  std::list<Fd> arrived_;
  bool reading_ = false;            // a thread reads for all groups
  std::unique_ptr<Poller> poller_;  // rung under the mutex, else used by the reading thread
  std::list<std::unique_ptr<Bearer>> bearers_;  // of the reading thread
};

// Over the listeners of the processes. All arguments must outlive it.
class MeshCourier final : public RosterCourier {
 public:
  // A child that takes nothing for so long is given up.
  static constexpr std::chrono::milliseconds kPatience{5'000};

  MeshCourier(const LocalEnd& local, const ProcessRecord& self, RosterInbox& inbox)
      : local_(local), self_(self), inbox_(inbox) {}
  void expect(const std::string& group) override { inbox_.expect(group); }
  void forget(const std::string& group) override { inbox_.forget(group); }
  std::string receive(const std::string& group, Deadline until) override {
    return inbox_.receive(group, until);
  }
  std::map<int, std::string> hand(const std::string& group, const std::string& list,
                                  const std::vector<RosterChild>& children,
                                  Deadline deadline) override;

 private:
  const LocalEnd& local_;
  const ProcessRecord& self_;
  RosterInbox& inbox_;
};

}  // namespace hccl_like

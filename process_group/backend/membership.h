#pragma once
// Whether all ranks mean the same group when they make one.
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process_group/backend/store.h"

namespace hccl_like {

// The ranks of a new group as the ranks of its parent have passed them, in the parent's store.
// torch numbers the calls of new_group, so ranks that make the same call know the group by the same
// name, whatever ranks they pass. Groups without a common member may have one name:
// new_subgroups(group=...) makes such groups, of ranks whose parents differ. Keys, below those of
// the parent and this group:
//   <n>            "rank 0 passed [0, 1]", by the first rank that passed the n-th list
//   <n>/conflict   the error, once a rank has passed another list with a member of that one
//   outside        lines "2 1": rank 2 passed the list of key 1, in which it is not
class Membership {
 public:
  // `parent` is the prefix of the parent's keys, which holds its random id; `rank` is this one's in
  // the parent, as are the members, of which there is one.
  Membership(c10::intrusive_ptr<c10d::Store> store, const std::string& parent, std::string group,
             int rank, std::vector<uint64_t> members);

  // A request or two for each list that was passed. Throws kMismatch, and has all that wait throw
  // the same, if a member of this list, or this rank, is a member of another list that was passed.
  // A store that cannot compare leaves the members unchecked.
  void declare();
  // Throws what declare() has thrown on another rank.
  void check();

  // Below which the group's ranks meet in the store: no other group of this name has it, nor one of
  // an earlier parent.
  const std::string& meeting_place() const { return meeting_place_; }

 private:
  std::string key_of(int list) const { return key_ + "/" + std::to_string(list); }
  bool is_member(uint64_t rank) const;
  bool conflicts_with(const std::string& declared) const;
  [[noreturn]] void conflict(int list, const std::string& declared);
  std::string list_at(int place) const;
  void check_outside();

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string key_;
  const std::string group_;
  const int rank_;
  const std::vector<uint64_t> members_;
  const std::string own_;  // "rank 0 passed [0, 1]"
  const std::string meeting_place_;
  int own_list_ = 0;
};

// A store whose waits end when the members of the group turn out to differ.
class MembershipStore final : public Store {
 public:
  // Of the c10d store, with all keys below the meeting place of `membership`, which outlives this.
  MembershipStore(const c10::intrusive_ptr<c10d::Store>& store, Membership& membership)
      : raw_(store), store_(store, membership.meeting_place()), membership_(membership) {}

  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override;
  int64_t add(const std::string& key, int64_t amount) override { return store_.add(key, amount); }

 private:
  const c10::intrusive_ptr<c10d::Store> raw_;
  C10dStore store_;
  Membership& membership_;
  bool waited_ = false;
};

}  // namespace hccl_like

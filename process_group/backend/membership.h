#pragma once
// Checks that all ranks pass the same members for a new group.
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process_group/backend/store.h"

namespace hccl_like {

// The member lists of a new group, as the ranks of the default group passed them, in its store.
// (The default group is the parent, of this backend or of another one.) torch numbers the calls of
// new_group, so the same call has the same group name on all ranks, whatever the members. Groups
// without a common member may share a name: new_subgroups(group=...) makes such groups from ranks
// of different parents. Keys, below the parent's and this group's:
//   <n>            "rank 0 passed [0, 1]", by the first rank that passed the n-th list
//   <n>/conflict   the error, after a rank passed another list that shares a member
//   outside        lines "2 1": rank 2 passed list 1, which does not contain rank 2
class Membership {
 public:
  // `parent`: prefix of the parent's keys, which contains its random id; empty if the parent is of
  // another backend and has none. `rank` and `members` are ranks of the parent; `members` is not
  // empty.
  Membership(c10::intrusive_ptr<c10d::Store> store, const std::string& parent, std::string group,
             int rank, std::vector<uint64_t> members);

  // Makes one or two requests per list. Throws kMismatch, here and on all waiting ranks, if a
  // member of this list or this rank is in another list. A store without compareSet() disables the
  // check.
  void declare();
  // Throws the error of declare() on another rank, if any.
  void check();

  // Key prefix for the group's bootstrap: unique among groups of this name and among parents.
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

// A store whose waits end with an error if the member lists differ.
class MembershipStore final : public Store {
 public:
  // Prefixes all keys with the meeting place of `membership`, which outlives this object.
  MembershipStore(const c10::intrusive_ptr<c10d::Store>& store, int ranks, Membership& membership)
      : store_(store, ranks, membership.meeting_place()), membership_(membership) {}

  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override;
  int64_t add(const std::string& key, int64_t amount) override { return store_.add(key, amount); }

 private:
  C10dStore store_;
  Membership& membership_;
};

}  // namespace hccl_like

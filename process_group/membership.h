#pragma once
// Whether all ranks mean the same group when they make one.
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process_group/store.h"

namespace hccl_like {

// The ranks of a new group as the ranks of its parent have passed them, in the parent's store. torch numbers the calls of new_group,
// so ranks that make the same call know the group by the same name, whatever ranks they pass.
class Membership {
 public:
  // `key` is the group's own, below the parent's; `rank` is this one's in the parent, as are the members.
  Membership(c10::intrusive_ptr<c10d::Store> store, std::string key, std::string group, int rank,
             const std::vector<uint64_t>& members);

  // One request. Throws kMismatch, and has all that wait throw the same, if another rank has passed other members. A store that cannot
  // compare leaves the members unchecked.
  void declare();
  // Throws what declare() has thrown on another rank.
  void check();

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string key_;
  const std::string group_;
  const int rank_;
  const std::string members_;  // "[0, 1]"
};

// A store whose waits end when the members of the group turn out to differ.
class MembershipStore final : public Store {
 public:
  // Of the c10d store, with the same keys. The last outlives this.
  MembershipStore(const c10::intrusive_ptr<c10d::Store>& store, Membership& membership)
      : raw_(store), store_(store), membership_(membership) {}

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

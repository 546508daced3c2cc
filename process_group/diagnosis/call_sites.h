#pragma once
// The lines of the program that make calls, for HCCL_LIKE_CALL_SITES.
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process_group/calls/calls.h"

namespace hccl_like {

// Of one group. A fingerprint has room for a number only, so each rank writes down in the store
// which line that is, once for each of its lines. Any thread, without a lock held or the
// interpreter's.
class CallSites {
 public:
  // `store` may be null; then numbers keep no names but those known here. Keys begin with `prefix`.
  CallSites(c10::intrusive_ptr<c10d::Store> store, std::string prefix);

  // Notes where the call is made, in the issue and its requests. A root often makes its call in a
  // branch of its own, so calls with a root are told apart by function; messages are not.
  void note(Issue& issue);
  // The text with the names of the call sites in it. Asks the store for those of other ranks.
  std::string named(const std::string& text);

 private:
  uint32_t number_of(const std::string& site);
  std::string name_of(uint32_t number);
  std::string key(uint32_t number) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  std::mutex mutex_;  // guards what follows
  std::unordered_map<uint32_t, std::string> names_;
};

}  // namespace hccl_like

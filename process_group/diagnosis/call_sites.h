#pragma once
// Call sites: the program lines that make calls (HCCL_LIKE_CALL_SITES).
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "process_group/calls/calls.h"

namespace hccl_like {

// For one group. A fingerprint holds only a number, so each rank publishes the text of each of its
// call sites in the store, once. Any thread; hold neither a lock nor the GIL.
class CallSites {
 public:
  // Without a store (null), only local call sites have texts. `prefix` starts every key.
  CallSites(c10::intrusive_ptr<c10d::Store> store, std::string prefix);

  // Records the call site in the issue and its requests. Calls with a root are identified by
  // function, because a root often calls from its own branch. Messages get a line but no number.
  void note(Issue& issue);
  // Replaces call site numbers in `text`. Reads other ranks' call sites from the store.
  std::string named(const std::string& text);

 private:
  uint32_t number_of(const std::string& site);
  std::string name_of(uint32_t number);
  std::string key(uint32_t number) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  std::mutex mutex_;  // guards the members below
  std::unordered_map<uint32_t, std::string> names_;
};

}  // namespace hccl_like

#pragma once
// Adapts c10d's Store to the bootstrap's interface.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/error.h"
#include "transport/network/store.h"

namespace hccl_like {

// Runs `body`, a store request. A lost connection and a timeout are both c10 errors; both become
// kSystem "the store could not <attempt>: ...".
template <class Body>
decltype(auto) asked_of_store(const std::string& attempt, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::Error& error) {
    throw_error(ErrorCode::kSystem,
                "the store could not " + attempt + ": " + error.what_without_backtrace());
  }
}

// The caller must not hold the GIL: calls may block, and a Store written in Python takes the GIL.
class C10dStore final : public Store {
 public:
  // `prefix` is prepended to every key. Waits in the store: get() returns at once when the key is
  // set, but torch's client logs two warnings for each get() that times out.
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix = {})
      : C10dStore(std::move(store), 0, std::move(prefix)) {}
  // For callers that wait in parts: get() asks the store again and again, with pauses that grow
  // with the number of `ranks` that do so, and a time-out is silent. The process with the store
  // must not end before all have asked.
  C10dStore(c10::intrusive_ptr<c10d::Store> store, int ranks, std::string prefix);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  bool wait_for(const std::vector<std::string>& keys, Deadline deadline);

  c10::intrusive_ptr<c10d::Store> store_;
  std::chrono::microseconds longest_pause_;  // 0: waits in the store
  std::string prefix_;
};

}  // namespace hccl_like

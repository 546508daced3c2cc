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
  // `ranks` of them ask the store at the same time. `prefix` is prepended to every key.
  C10dStore(c10::intrusive_ptr<c10d::Store> store, int ranks, std::string prefix = {});

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  bool wait_for(const std::vector<std::string>& keys, Deadline deadline);

  c10::intrusive_ptr<c10d::Store> store_;
  std::chrono::microseconds longest_pause_;
  std::string prefix_;
};

}  // namespace hccl_like

#pragma once
// c10d's Store as the bootstrap wants it.
#include <string>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/base/error.h"
#include "transport/network/store.h"

namespace hccl_like {

// Runs `body`, which asks a store. What a store throws depends on its kind; a broken connection and
// a time-out alike are c10 errors, and become a kSystem "the store could not <attempt>: ...".
template <class Body>
decltype(auto) asked_of_store(const std::string& attempt, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::Error& error) {
    throw_error(ErrorCode::kSystem,
                "the store could not " + attempt + ": " + error.what_without_backtrace());
  }
}

// Calls may block, so the caller must not hold the GIL: a Store written in Python takes it itself.
class C10dStore final : public Store {
 public:
  // Every key gets `prefix` in front.
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix = {});

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
};

}  // namespace hccl_like

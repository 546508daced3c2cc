#pragma once
// c10d's Store as the bootstrap wants it.
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "transport/store.h"

namespace hccl_like {

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

#pragma once
// The key-value store interface for bootstrapping. process_group/ adapts c10d's Store to it.
#include <cstdint>
#include <string>

#include "core/base/deadline.h"

namespace hccl_like {

// Shared by all ranks of a job. Thread-safe. Calls may block until the deadline and then throw an
// Exception (kTimeout) that names the key.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  // Adds to a counter (initially 0) and returns the new value.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

}  // namespace hccl_like

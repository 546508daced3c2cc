#pragma once
// Stores for tests and benchmarks: one for threads, one for forked processes.
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/memory/mapping.h"
#include "transport/network/store.h"

namespace hccl_like {

// For ranks that are threads of one process.
class LocalStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// For ranks that are forked after it was made: it lies in shared anonymous memory of a fixed size.
// A process that is killed, even inside a call, does not harm the others. Values that do not fit
// throw kSystem. All values are kept, so overwriting a key for ever fills it, too.
class ForkStore final : public Store {
 public:
  explicit ForkStore(size_t bytes = 4 << 20);
  ~ForkStore() override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  int64_t add(const std::string& key, int64_t amount) override;

  // How many calls all processes have made together, to test how a protocol grows with the ranks.
  struct Calls {
    uint64_t sets, gets, adds;
  };
  Calls calls() const;

 private:
  struct Shared;
  class Lock;
  std::optional<std::string> find(const std::string& key) const;
  void append(const std::string& key, const std::string& value);

  Mapping memory_;
  Shared& shared_;
};

// A store that sees only what was put under its own prefix, as c10d's PrefixStore.
class PrefixedStore final : public Store {
 public:
  PrefixedStore(Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}
  void set(const std::string& key, const std::string& value) override {
    store_.set(prefix_ + key, value);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return store_.get(prefix_ + key, deadline);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return store_.add(prefix_ + key, amount);
  }

 private:
  Store& store_;
  const std::string prefix_;
};

}  // namespace hccl_like

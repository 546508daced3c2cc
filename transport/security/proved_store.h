#pragma once
// A store in which every value carries a proof of its writer (see proof::seal).
#include <chrono>
#include <string>
#include <string_view>

#include "transport/network/store.h"
#include "transport/security/job_key.h"

namespace hccl_like {

// Used by one thread at a time; blocks as the store does.
class ProvedStore {
 public:
  // Time to re-read unproved values: the right writer may still come, or overwrite a forgery.
  static constexpr std::chrono::milliseconds kGrace{2'000};

  // All arguments must outlive this object. `scope`: proved with every value, equal on all ranks,
  // so that a value copied from another group is unproved.
  ProvedStore(Store& store, const JobKey& job, std::string_view scope)
      : store_(store), job_(job), scope_(scope) {}

  void set(const std::string& key, const std::string& value) { store_.set(key, seal(key, value)); }
  // The value as set() stores it, and the reverse.
  std::string seal(const std::string& key, const std::string& value) const {
    return proof::seal(job_, in_scope(key), value);
  }
  proof::Opened open(const std::string& key, std::string_view sealed) const {
    return proof::open(job_, in_scope(key), sealed);
  }
  int64_t add(const std::string& key, int64_t amount) { return store_.add(key, amount); }
  // Waits until the key exists, as Store::get.
  proof::Opened get(const std::string& key, Deadline deadline) {
    return open(key, store_.get(key, deadline));
  }
  // The same, but re-reads an unproved value within the rest of kGrace, even past the deadline.
  proof::Opened get_proved(const std::string& key, Deadline deadline);

  const JobKey& job() const { return job_; }

 private:
  std::string in_scope(const std::string& key) const { return key + '/' + std::string(scope_); }

  Store& store_;
  const JobKey& job_;
  const std::string_view scope_;
  Deadline grace_ = Deadline::never();  // starts at the first unproved value
};

}  // namespace hccl_like

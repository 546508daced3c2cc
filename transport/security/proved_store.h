#pragma once
// A store in which every value goes with a proof of its writer (see proof::seal).
#include <chrono>
#include <string>
#include <string_view>

#include "transport/network/store.h"
#include "transport/security/job_key.h"

namespace hccl_like {

// Used by one thread at a time; blocks as the store does.
class ProvedStore {
 public:
  // How long all unproved values together are looked at again before they count as such: whoever
  // should have written there may come later, or mend what somebody else wrote.
  static constexpr std::chrono::milliseconds kGrace{2'000};

  // All must outlive it. `scope`: what is proved besides, the same on all ranks, so that a value
  // which is copied here from another group's part of the store is unproved.
  ProvedStore(Store& store, const JobKey& job, std::string_view scope)
      : store_(store), job_(job), scope_(scope) {}

  void set(const std::string& key, const std::string& value) {
    store_.set(key, proof::seal(job_, in_scope(key), value));
  }
  int64_t add(const std::string& key, int64_t amount) { return store_.add(key, amount); }
  // Waits until the key exists, as Store::get.
  proof::Opened get(const std::string& key, Deadline deadline) {
    return proof::open(job_, in_scope(key), store_.get(key, deadline));
  }
  // The same; an unproved value is looked at again while there is grace left, be it past the
  // deadline.
  proof::Opened get_proved(const std::string& key, Deadline deadline);

  const JobKey& job() const { return job_; }

 private:
  std::string in_scope(const std::string& key) const { return key + '/' + std::string(scope_); }

  Store& store_;
  const JobKey& job_;
  const std::string_view scope_;
  Deadline grace_ = Deadline::never();  // from the first unproved value on
};

}  // namespace hccl_like

#pragma once
// The store of a simulated job: it takes its time, keeps what processes that are gone have left,
// and others may write to it.
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/fault_simulation/sockets/network.h"
#include "transport/network/store.h"

namespace hccl_like::fault_simulation {

class SlowStore final : public Store {
 public:
  explicit SlowStore(Network& network) : network_(network) {}

  void set(const std::string& key, const std::string& value) override {
    travel();
    if (network_.current_is_dead()) return;
    put(key, value);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    travel();
    while (!values_.contains(key)) {
      if (deadline.expired())
        throw_error(ErrorCode::kTimeout, "timed out waiting for the key " + key + " of the store");
      const Time until = deadline.is_never()
                             ? kForEver
                             : deadline.time_point().time_since_epoch().count() - kBegin;
      waiting_.push_back(network_.current());
      network_.block(until);
    }
    return values_.at(key);
  }
  int64_t add(const std::string& key, int64_t amount) override {
    travel();
    if (network_.current_is_dead()) return 1;
    return counters_[key] += amount;
  }

  // ---- by others
  // No answer before then.
  Time absent_until = -1;
  std::map<std::string, std::string>& values() { return values_; }
  std::map<std::string, int64_t>& counters() { return counters_; }
  void put(const std::string& key, const std::string& value) {
    values_[key] = value;
    for (const int one : std::exchange(waiting_, {})) network_.wake(one);
  }

 private:
  void travel() {
    const Time until =
        std::max(absent_until, now) + network_.random.between(20 * kMicrosecond, 2 * kMillisecond);
    while (now < until && !network_.current_is_dead()) network_.block(until);
  }

  Network& network_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
  std::vector<int> waiting_;
};

}  // namespace hccl_like::fault_simulation

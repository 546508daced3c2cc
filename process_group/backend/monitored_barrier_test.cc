#include "process_group/backend/monitored_barrier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "transport/testing/local_store.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

// Waits before each answer that another rank gives is read, and tells whether rank 0 has ended by
// then.
class SlowReader final : public Store {
 public:
  SlowReader(LocalStore& store, const std::atomic<bool>& rank_0_ended)
      : store_(store), rank_0_ended_(rank_0_ended) {}

  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  int64_t add(const std::string& key, int64_t amount) override { return store_.add(key, amount); }
  std::string get(const std::string& key, Deadline deadline) override {
    store_.get(key, deadline);
    std::this_thread::sleep_for(milliseconds(50));
    if (rank_0_ended_) store_ended = true;
    return store_.get(key, deadline);
  }

  bool store_ended = false;

 private:
  LocalStore& store_;
  const std::atomic<bool>& rank_0_ended_;
};

TEST(MonitoredBarrier, Rank0StaysUntilItsAnswerIsRead) {
  LocalStore store;
  std::atomic<bool> rank_0_ended = false;
  SlowReader slow(store, rank_0_ended);
  std::thread rank_1([&] { monitored_barrier(slow, "b", 1, 2, milliseconds(10000), false); });
  monitored_barrier(store, "b", 0, 2, milliseconds(10000), false);
  rank_0_ended = true;
  rank_1.join();
  EXPECT_FALSE(slow.store_ended);
}

}  // namespace
}  // namespace hccl_like

#include "process_group/backend/store.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace hccl_like {
namespace {

// A waiting rank asks the store again after a quarter of the time that it has waited, within limits
// that leave a store some thousand requests a second.
using std::chrono::microseconds;
constexpr microseconds kShortestPause{1'000}, kPausePerRank{250}, kLongestPause{250'000};

// Some stores treat a timeout of 0 as infinite; others overflow on large timeouts.
std::chrono::milliseconds store_timeout(Deadline deadline) {
  constexpr int kLongest = 24 * 3600 * 1000;
  const int left = deadline.remaining();
  return std::chrono::milliseconds(left < 0 ? kLongest : std::clamp(left, 1, kLongest));
}

}  // namespace

C10dStore::C10dStore(c10::intrusive_ptr<c10d::Store> store, int ranks, std::string prefix)
    : store_(std::move(store)),
      longest_pause_(ranks == 0 ? microseconds(0)
                                : std::clamp(ranks * kPausePerRank, kShortestPause, kLongestPause)),
      prefix_(std::move(prefix)) {
  if (!store_) throw_misuse("a process group needs a store; pass the one of init_process_group");
}

void C10dStore::set(const std::string& key, const std::string& value) {
  asked_of_store("set '" + key + "'", [&] { store_->set(prefix_ + key, value); });
}

bool C10dStore::wait_for(const std::vector<std::string>& keys, Deadline deadline) {
  using Clock = std::chrono::steady_clock;
  bool asks = longest_pause_.count() > 0;
  for (const auto begin = Clock::now(); asks;) {
    try {
      if (store_->check(keys)) return true;
    } catch (const c10::DistError&) {
      throw;
    } catch (const std::exception&) {  // stores in Python may lack check()
      asks = false;
      continue;
    }
    if (deadline.expired()) return false;
    const auto pause =
        std::clamp<Clock::duration>((Clock::now() - begin) / 4, kShortestPause, longest_pause_);
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, store_timeout(deadline)));
  }
  store_->wait(keys, store_timeout(deadline));
  return true;
}

std::string C10dStore::get(const std::string& key, Deadline deadline) {
  const std::vector<std::string> keys{prefix_ + key};
  bool is_set = false;
  try {
    is_set = wait_for(keys, deadline);
  } catch (const c10::Error& error) {
    if (!deadline.expired()) {
      throw_error(ErrorCode::kSystem,
                  "the store could not wait for '" + key + "': " + error.what_without_backtrace());
    }
  }
  if (!is_set) throw_error(ErrorCode::kTimeout, "nobody set '" + key + "' in the store in time");
  return asked_of_store("get '" + key + "'", [&] { return store_->get_to_str(keys.front()); });
}

int64_t C10dStore::add(const std::string& key, int64_t amount) {
  return asked_of_store("add to '" + key + "'", [&] { return store_->add(prefix_ + key, amount); });
}

}  // namespace hccl_like

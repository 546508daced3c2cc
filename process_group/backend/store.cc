#include "process_group/backend/store.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace hccl_like {
namespace {

// Some stores treat a timeout of 0 as infinite; others overflow on large timeouts.
std::chrono::milliseconds store_timeout(Deadline deadline) {
  constexpr int kLongest = 24 * 3600 * 1000;
  const int left = deadline.remaining();
  return std::chrono::milliseconds(left < 0 ? kLongest : std::clamp(left, 1, kLongest));
}

}  // namespace

C10dStore::C10dStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)) {
  if (!store_) throw_misuse("a process group needs a store; pass the one of init_process_group");
}

void C10dStore::set(const std::string& key, const std::string& value) {
  asked_of_store("set '" + key + "'", [&] { store_->set(prefix_ + key, value); });
}

std::string C10dStore::get(const std::string& key, Deadline deadline) {
  const std::vector<std::string> keys{prefix_ + key};
  try {
    store_->wait(keys, store_timeout(deadline));
  } catch (const c10::Error& error) {
    if (!deadline.expired()) {
      throw_error(ErrorCode::kSystem,
                  "the store could not wait for '" + key + "': " + error.what_without_backtrace());
    }
    throw_error(ErrorCode::kTimeout, "nobody set '" + key + "' in the store in time");
  }
  return asked_of_store("get '" + key + "'", [&] { return store_->get_to_str(keys.front()); });
}

int64_t C10dStore::add(const std::string& key, int64_t amount) {
  return asked_of_store("add to '" + key + "'", [&] { return store_->add(prefix_ + key, amount); });
}

}  // namespace hccl_like

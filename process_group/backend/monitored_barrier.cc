#include "process_group/backend/monitored_barrier.h"

#include <vector>

#include <c10/util/Exception.h>

#include "core/base/error.h"

namespace hccl_like {
namespace {

// The errors begin like those of gloo's barrier, which tools recognize.
[[noreturn]] void fail(const std::string& sentence) { C10_THROW_ERROR(DistBackendError, sentence); }

std::string in_milliseconds(std::chrono::milliseconds timeout) {
  return std::to_string(timeout.count()) + " ms";
}

bool is_there(Store& store, const std::string& key, Deadline deadline) {
  try {
    store.get(key, deadline);
    return true;
  } catch (const Exception& exception) {
    if (exception.code() == ErrorCode::kTimeout) return false;
    throw;
  }
}

std::string ranks_failed(const std::vector<int>& missing) {
  std::string text = missing.size() == 1 ? "Rank " : "Ranks ";
  for (size_t i = 0; i < missing.size(); ++i) text += (i ? ", " : "") + std::to_string(missing[i]);
  return text + " failed to pass monitoredBarrier";
}

}  // namespace

void monitored_barrier(Store& store, const std::string& name, int rank, int size,
                       std::chrono::milliseconds timeout, bool wait_all_ranks) {
  const Deadline deadline = Deadline::after(timeout);
  const auto arrived = [&](int who) { return name + "/arrived/" + std::to_string(who); };
  const std::string go = name + "/go";
  if (rank != 0) {
    store.set(arrived(rank), "1");
    if (is_there(store, go, deadline)) return;
    fail("Rank " + std::to_string(rank) +
         " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
         "from rank 0: it did not answer within " +
         in_milliseconds(timeout) +
         "; its own error says which rank is missing, unless it is itself");
  }
  std::vector<int> missing;
  for (int other = 1; other < size; ++other) {
    if (deadline.expired() && missing.empty()) {
      fail("Rank 0 timed out in monitoredBarrier after " + in_milliseconds(timeout) +
           ", before it could look for rank " + std::to_string(other));
    }
    if (is_there(store, arrived(other), deadline)) continue;
    missing.push_back(other);
    if (!wait_all_ranks) break;
  }
  if (!missing.empty()) {
    fail(ranks_failed(missing) + " within " + in_milliseconds(timeout) +
         "; look at what these ranks do instead, or whether they are alive");
  }
  store.set(go, "1");
}

}  // namespace hccl_like

#include "process_group/membership.h"

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace hccl_like {
namespace {

// A rank that waits longer than the first for others looks every now and then whether they mean another group.
constexpr std::chrono::milliseconds kFirstWait{1000}, kBetweenLooks{100};
// What takes the place of the first rank's words once another rank has passed other members.
constexpr std::string_view kConflict = "ranks disagree about the members of group ";

std::string list_of(const std::vector<uint64_t>& ranks) {
  std::string text = "[";
  for (const uint64_t rank : ranks) text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

std::vector<uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

Membership::Membership(c10::intrusive_ptr<c10d::Store> store, std::string key, std::string group,
                       int rank, const std::vector<uint64_t>& members)
    : store_(std::move(store)),
      key_(std::move(key)),
      group_(std::move(group)),
      rank_(rank),
      members_(list_of(members)) {}

// The first rank's words stay while all agree: "rank 0 passed [0, 1]".
void Membership::declare() {
  const std::string own = "rank " + std::to_string(rank_) + " passed " + members_;
  std::string first;
  try {
    const auto stored = store_->compareSet(key_, {}, as_bytes(own));
    first.assign(stored.begin(), stored.end());
  } catch (const std::exception& problem) {
    log_warn("the members of group " + group_ + " are not compared between ranks: " +
             std::string(problem.what()).substr(0, std::string(problem.what()).find('\n')));
    return;
  }
  if (first.ends_with(" passed " + members_)) return;
  if (first.starts_with(kConflict)) throw_error(ErrorCode::kMismatch, first);
  const std::string text = std::string(kConflict) + group_ + ": " + first + ", " + own +
                           ". Every rank must make the same calls of new_group in the same order, "
                           "with the same ranks";
  store_->set(key_, as_bytes(text));
  throw_error(ErrorCode::kMismatch, text);
}

void Membership::check() {
  if (!store_->check({key_})) return;
  const std::string said = store_->get_to_str(key_);
  if (said.starts_with(kConflict)) throw_error(ErrorCode::kMismatch, said);
}

// torch's client writes a warning for each wait that runs into its time-out, so there is one of these, and after that it is asked.
std::string MembershipStore::get(const std::string& key, Deadline deadline) {
  if (!std::exchange(waited_, true)) {
    const Deadline first = earliest(deadline, Deadline::after(kFirstWait));
    try {
      return store_.get(key, first);
    } catch (const Exception& exception) {
      if (exception.code() != ErrorCode::kTimeout || deadline.expired()) throw;
    }
  }
  while (!raw_->check({key})) {
    membership_.check();
    if (deadline.expired())
      throw_error(ErrorCode::kTimeout, "nobody set '" + key + "' in the store in time");
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return store_.get(key, deadline);
}

}  // namespace hccl_like

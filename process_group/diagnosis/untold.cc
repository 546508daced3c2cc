#include "process_group/diagnosis/untold.h"

#include <mutex>
#include <unordered_set>
#include <utility>

namespace hccl_like {
namespace {

std::mutex untold_mutex;  // guards the variables below
uint64_t groups_made = 0;
std::unordered_set<uint64_t> groups_told;
uint64_t loss_told = 0;  // newest group when the program was last told of a lost rank
struct Untold {
  uint64_t group;
  Error error;
};
std::optional<Untold> first_untold;

bool is_known(const Untold& untold) {
  return groups_told.contains(untold.group) ||
         (cause(untold.error) == ErrorCode::kPeerLost && untold.group <= loss_told);
}

void remember(uint64_t group, const Error& error) {
  groups_told.insert(group);
  if (cause(error) == ErrorCode::kPeerLost) loss_told = groups_made;
}

}  // namespace

uint64_t number_of_new_group() {
  std::lock_guard lock(untold_mutex);
  return ++groups_made;
}

void note_untold(uint64_t group, const Error& error) {
  const bool asked_for = error.code == ErrorCode::kAborted && !error.told;
  std::lock_guard lock(untold_mutex);
  const Untold untold{group, error};
  if (!asked_for && !first_untold && !is_known(untold)) first_untold = untold;
}

void failure_told(uint64_t group, const Error& error) {
  std::lock_guard lock(untold_mutex);
  remember(group, error);
  if (first_untold && is_known(*first_untold)) first_untold.reset();
}

std::optional<Error> take_untold() {
  std::lock_guard lock(untold_mutex);
  const auto untold = std::exchange(first_untold, std::nullopt);
  if (!untold) return std::nullopt;
  remember(untold->group, untold->error);
  return untold->error;
}

}  // namespace hccl_like

#include "process_group/untold.h"

#include <mutex>
#include <utility>

namespace hccl_like {
namespace {

std::mutex untold_mutex;  // guards what follows
uint64_t groups_made = 0;
uint64_t groups_told = 0;  // the last group that was there when the program was told of a failure
std::optional<Error> first_untold;

}  // namespace

uint64_t number_of_new_group() {
  std::lock_guard lock(untold_mutex);
  return ++groups_made;
}

void note_untold(uint64_t group, const Error& error) {
  const bool asked_for = error.code == ErrorCode::kAborted && !error.told;
  std::lock_guard lock(untold_mutex);
  if (!asked_for && group > groups_told && !first_untold) first_untold = error;
}

void failure_told() {
  std::lock_guard lock(untold_mutex);
  groups_told = groups_made;
  first_untold.reset();
}

std::optional<Error> take_untold() {
  std::lock_guard lock(untold_mutex);
  if (first_untold) groups_told = groups_made;
  return std::exchange(first_untold, std::nullopt);
}

}  // namespace hccl_like

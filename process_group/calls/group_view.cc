#include "process_group/calls/group_view.h"

#include <numeric>

namespace hccl_like {
namespace {

int stride_of(const std::vector<uint64_t>& ranks) {
  if (ranks.size() < 2) return 1;
  const auto difference = [&](size_t i) {
    return static_cast<int64_t>(ranks[i]) - static_cast<int64_t>(ranks[i - 1]);
  };
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (difference(i) <= 0 || difference(i) != difference(1)) return -1;
  }
  return static_cast<int>(difference(1));
}

}  // namespace

GroupView view_of(const c10d::Backend& backend, const c10d::Backend::Options& options) {
  GroupView view{.name = backend.getGroupUid().empty() ? options.group_name : backend.getGroupUid(),
                 .description = backend.getGroupDesc(),
                 .rank = backend.getRank(),
                 .size = backend.getSize(),
                 .global_ranks = options.global_ranks_in_group};
  if (view.global_ranks.empty()) {  // empty means all ranks
    view.global_ranks.resize(static_cast<size_t>(view.size));
    std::iota(view.global_ranks.begin(), view.global_ranks.end(), uint64_t{0});
  }
  view.start = static_cast<int>(view.global_ranks.front());
  view.stride = stride_of(view.global_ranks);
  return view;
}

CallNumber CallCounter::next(bool is_message) {
  std::lock_guard lock(mutex_);
  bool& counted = is_message ? counted_message_ : counted_collective_;
  if (!in_block_ || !counted) ++(is_message ? last_.message : last_.collective);
  counted = true;
  ++last_.operation;
  last_.is_message = is_message;
  return last_;
}

void CallCounter::begin_block() {
  std::lock_guard lock(mutex_);
  in_block_ = true;
  counted_collective_ = counted_message_ = false;
}

CallNumber CallCounter::end_block() {
  std::lock_guard lock(mutex_);
  in_block_ = false;
  ++last_.operation;
  CallNumber number = last_;
  number.is_message = counted_message_;
  number.is_block = true;
  return number;
}

}  // namespace hccl_like

// Groups made from a group: split, shrink and merge.
#include <algorithm>
#include <numeric>

#include "collectives/engine/runtime.h"
#include "process_group/backend/backend.h"
#include "process_group/diagnosis/errors.h"

namespace hccl_like {
namespace {

// torch's flags of shrink_group().
constexpr int kShrinkAbort = 1;

c10::intrusive_ptr<Options> ours(const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  if (auto same = c10::dynamic_intrusive_pointer_cast<Options>(options)) return same;
  return options ? c10::make_intrusive<Options>(*options) : c10::make_intrusive<Options>();
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

}  // namespace

// Makes a group of `ranks` over the existing connections. Every rank that continues to use this
// group makes the same call; returns null on a rank outside `ranks`.
c10::intrusive_ptr<Backend> Backend::part(const std::vector<int>& ranks,
                                          c10::intrusive_ptr<hccl_like::Options> options) {
  const auto session = issuer_.open_session();
  const auto communicator = this->communicator();
  options->global_ranks_in_group.clear();
  for (const int rank : ranks) {
    const auto index = static_cast<size_t>(rank);
    const bool identity = options_->global_ranks_in_group.empty();
    options->global_ranks_in_group.push_back(identity ? index
                                                      : options_->global_ranks_in_group.at(index));
  }
  const bool member = contains(ranks, rank_);
  const auto child =
      communicator->split(member ? std::span(ranks) : std::span<const int>(), options->group_name);
  if (!child) return nullptr;
  child->set_timeout(options->timeout);
  // Uses this group's store, because torch's store may have different prefixes on different ranks.
  auto backend = c10::make_intrusive<Backend>(session, child, store_, options);
  backend->add_own_algorithms();
  return backend;
}

// Does not rely on the same store or name on all ranks.
c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<c10d_Options>& options) {
  return translated("hccl-like split", [&]() -> c10::intrusive_ptr<c10d::Backend> {
    const std::lock_guard lock(split_mutex_);
    auto child_options = c10::make_intrusive<hccl_like::Options>(*ours(options));
    if (last_split_ && last_split_->store == store && last_split_->ranks == ranks &&
        last_split_->name == child_options->group_name) {
      if (!last_split_->backend) return nullptr;
      if (auto backend = last_split_->backend->lock()) return backend;
    }
    c10::intrusive_ptr<c10d::Backend> backend = part(ranks, child_options);
    ++splits_;
    last_split_ = Split{store, ranks, child_options->group_name, std::nullopt};
    if (backend) last_split_->backend = c10::weak_intrusive_ptr<c10d::Backend>(backend);
    return backend;
  });
}

// Excluded ranks do not call this and may be dead. A failure of this group concerns its own calls,
// not the connections between the remaining ranks.
c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<int64_t>& ranks_to_exclude,
                                                  int flags,
                                                  const c10::intrusive_ptr<c10d_Options>& options) {
  return translated("hccl-like shrink", [&]() -> c10::intrusive_ptr<c10d::Backend> {
    (void)issuer_.open_session();
    std::vector<int> left(static_cast<size_t>(size_));
    std::iota(left.begin(), left.end(), 0);
    for (const int64_t rank : ranks_to_exclude) {
      if (rank < 0 || rank >= size_) {
        throw_misuse("rank " + std::to_string(rank) +
                     " cannot be left out: the group has ranks 0 to " + std::to_string(size_ - 1));
      }
      std::erase(left, static_cast<int>(rank));
    }
    if (!contains(left, rank_)) {
      throw_misuse("rank " + std::to_string(rank_) +
                   " is to be left out; only the ranks that stay call shrink");
    }
    if ((flags & kShrinkAbort) != 0) abort();
    const std::lock_guard lock(split_mutex_);
    return part(left,
                c10::make_intrusive<hccl_like::Options>(options ? *ours(options) : *options_));
  });
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<c10d_Options>& options,
                                                 const int& rank, const int& size) {
  const auto session = translated("hccl-like merge", [&] { return issuer_.open_session(); });
  return create(session, store, rank, size, ours(options));
}

void close_all(Session& session, const std::string& reason) {
  const std::set<Backend*> open = session.take_all();
  if (!reason.empty()) {
    session.use();
    for (Backend* backend : open) backend->abort(reason);
  }
  for (Backend* backend : open) backend->close_at_exit();
}

}  // namespace hccl_like

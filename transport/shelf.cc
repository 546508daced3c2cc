#include "transport/shelf.h"

#include "core/memory_file.h"

namespace hccl_like {

std::optional<uint32_t> Shelf::take() {
  const std::lock_guard lock(mutex_);
  std::erase_if(retired_, [this](const auto& one) {
    const bool over = one.second();
    if (over) free_.push_back(one.first);
    return over;
  });
  if (!free_.empty()) {
    const uint32_t piece = free_.back();
    free_.pop_back();
    return piece;
  }
  if (fresh_ == count_ || !reserve(fd_, offset_ + size_t{fresh_} * bytes_, reserved_) ||
      !populate({data(fresh_), reserved_}))
    return std::nullopt;
  return fresh_++;
}

void Shelf::give_back(uint32_t piece) {
  const std::lock_guard lock(mutex_);
  free_.push_back(piece);
}

void Shelf::retire(uint32_t piece, std::function<bool()> unread) {
  const std::lock_guard lock(mutex_);
  retired_.emplace_back(piece, std::move(unread));
}

}  // namespace hccl_like

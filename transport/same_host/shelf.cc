#include "transport/same_host/shelf.h"

#include <utility>

#include "core/memory/memory_file.h"

namespace hccl_like {

std::optional<uint32_t> Shelf::take(bool asks_first) {
  const std::lock_guard lock(mutex_);
  if (asks_first || free_.empty()) ask_readers();
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

void Shelf::retire(uint32_t piece, std::shared_ptr<const Readers> readers, uint32_t use) {
  const std::lock_guard lock(mutex_);
  ask_readers();
  retired_.push_back({piece, use, std::move(readers)});
}

void Shelf::ask_readers() {
  std::erase_if(retired_, [this](const Retired& one) {
    const bool over = one.readers->are_done_with(one.use);
    if (over) free_.push_back(one.piece);
    return over;
  });
}

}  // namespace hccl_like

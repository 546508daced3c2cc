#pragma once
// Owner of memory that a call borrows.
#include <memory>

namespace hccl_like {

// Can keep the memory alive when a call ends while a peer may still write to it
// (transport/message/kept_memory.h). Valid during the call.
struct MemoryOwner {
  void* object = nullptr;
  std::shared_ptr<void> (*hold)(void* object) = nullptr;  // null: cannot be kept

  // The memory lives at least as long as the result. Null: the memory may be freed at any time.
  std::shared_ptr<void> keep() const { return hold == nullptr ? nullptr : hold(object); }
};

}  // namespace hccl_like

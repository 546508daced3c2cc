#pragma once
// Who owns memory that a call borrows.
#include <memory>

namespace hccl_like {

// Asked to keep the memory when a call ends while a peer may still write to it
// (transport/message/kept_memory.h). Valid as long as the call.
struct MemoryOwner {
  void* object = nullptr;
  std::shared_ptr<void> (*hold)(void* object) = nullptr;  // null: nobody can be asked

  // The memory exists at least as long as the result. Null: it may be freed at any time.
  std::shared_ptr<void> keep() const { return hold == nullptr ? nullptr : hold(object); }
};

}  // namespace hccl_like

#pragma once

namespace torch_sim {

// Called around every wait of a host thread that may last. The Python layer installs functions that
// let go of the interpreter's lock meanwhile: a stream may be about to run a Python function, and
// would wait for that lock for ever.
struct BlockingHooks {
  void* (*enter)() = nullptr;
  void (*leave)(void*) = nullptr;
};

// Set once, before the first wait.
void set_blocking_hooks(BlockingHooks hooks);

class BlockingRegion {
 public:
  BlockingRegion();
  ~BlockingRegion();
  BlockingRegion(const BlockingRegion&) = delete;
  BlockingRegion& operator=(const BlockingRegion&) = delete;

 private:
  void* state_;
};

}  // namespace torch_sim

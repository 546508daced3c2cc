#include "base/blocking.h"

namespace torch_sim {
namespace {

BlockingHooks hooks;

}  // namespace

void set_blocking_hooks(BlockingHooks installed) { hooks = installed; }

BlockingRegion::BlockingRegion() : state_(hooks.enter ? hooks.enter() : nullptr) {}

BlockingRegion::~BlockingRegion() {
  if (state_) hooks.leave(state_);
}

}  // namespace torch_sim

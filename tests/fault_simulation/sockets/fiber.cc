#include "tests/fault_simulation/sockets/fiber.h"

#include <cxxabi.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace hccl_like::fault_simulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;
// Stacks of fibers that are gone: fresh memory would cost a page fault for each page, each time.
std::vector<std::unique_ptr<std::byte[]>> spare;

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  if (spare.empty()) {
    stack_ = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  } else {
    stack_ = std::move(spare.back());
    spare.pop_back();
  }
  ::getcontext(&beginning_);
  beginning_.uc_stack.ss_sp = stack_.get();
  beginning_.uc_stack.ss_size = kStackBytes;
  const auto self = reinterpret_cast<uintptr_t>(this);
  ::makecontext(&beginning_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

Fiber::~Fiber() { spare.push_back(std::move(stack_)); }

void Fiber::enter(unsigned high, unsigned low) {
  auto* const self =
      reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | static_cast<uintptr_t>(low));
  self->body_();
  self->done_ = true;
  ::_longjmp(self->caller_, 1);
}

void Fiber::resume() {
  swap_exceptions();
  if (_setjmp(caller_) == 0) {
    if (std::exchange(begun_, true)) ::_longjmp(own_, 1);
    ::setcontext(&beginning_);
  }
  swap_exceptions();
}

void Fiber::yield() {
  if (_setjmp(own_) == 0) ::_longjmp(caller_, 1);
}

void Fiber::swap_exceptions() {
  auto* const now = reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
  std::swap(*now, exceptions_);
}

}  // namespace hccl_like::fault_simulation

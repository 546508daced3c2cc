#pragma once
// A process of a simulated job: code that blocks, in one thread with all the others.
#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace hccl_like::fault_simulation {

// Runs `body` on a stack of its own, from one resume() to the next yield().
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Until it yields, or its body is over.
  void resume();
  // By the body: back to whoever resumed it.
  void yield();
  bool done() const { return done_; }

 private:
  // The C++ runtime's state for each thread of exceptions in flight.
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  static void enter(unsigned high, unsigned low);
  void swap_exceptions();

  const std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  // For the first time; switching in this way changes the signal mask, by two system calls.
  ucontext_t beginning_{};
  jmp_buf own_{}, caller_{};
  Exceptions exceptions_;
  bool begun_ = false, done_ = false;
};

}  // namespace hccl_like::fault_simulation

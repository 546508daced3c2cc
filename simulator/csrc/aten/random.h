#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace torch_sim {

// Gives a random operator, for the length of one call of its host kernel, host random numbers that
// follow from the device generator's state, and moves that state on afterwards. Operators that take
// no generator draw from the host's default one: it is set for the call and put back after.
class RandomNumbers {
 public:
  // The operator's arguments are on top of the stack; a device generator among them is replaced by
  // a host one.
  RandomNumbers(const c10::OperatorHandle& op, torch::jit::Stack& stack, int device);
  ~RandomNumbers();
  RandomNumbers(const RandomNumbers&) = delete;
  RandomNumbers& operator=(const RandomNumbers&) = delete;

  // The kernel is done; its results, or the tensor it filled, are on top of the stack.
  void finish(const torch::jit::Stack& stack);

 private:
  at::Generator source_;                // of the device; undefined if the operator is not random
  std::optional<at::Generator> saved_;  // the host's default generator, to be put back
};

}  // namespace torch_sim

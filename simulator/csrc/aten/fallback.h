#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

namespace torch_sim {

// Runs the host's kernel of an operator on the device's memory, in the turn of the device's current
// stream, on the calling thread. A boxed kernel for any operator.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same with the host's kernel for sparse tensors.
void run_sparse_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Throws what torch throws for an operator that a device lacks, if this one is to have none.
void check_offered(const std::string& name);

}  // namespace torch_sim

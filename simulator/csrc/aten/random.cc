#include "aten/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>

#include <mutex>

#include "glue/generator.h"

namespace torch_sim {
namespace {

// Position of the operator's generator argument; -1 if it takes none.
int generator_position(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::TypePtr type = arguments[i].type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::GeneratorType) return static_cast<int>(i);
  }
  return -1;
}

std::recursive_mutex& host_default_mutex() {
  static auto& mutex = *new std::recursive_mutex();
  return mutex;
}

uint64_t elements_drawn(const torch::jit::Stack& stack) {
  if (!stack.empty() && stack.back().isTensor())
    return static_cast<uint64_t>(stack.back().toTensor().numel());
  return 1;
}

}  // namespace

RandomNumbers::RandomNumbers(const c10::OperatorHandle& op, torch::jit::Stack& stack, int device) {
  const int position = generator_position(op.schema());
  const bool is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  if (position < 0 && !is_random) return;
  TORCH_CHECK_NOT_IMPLEMENTED(!current_stream(device).capture(), "sim: ", op.schema().name(),
                              " draws random numbers, which a graph on sim cannot do again");
  c10::IValue* argument =
      position < 0 ? nullptr : &stack[stack.size() - op.schema().arguments().size() + position];
  if (argument && argument->isGenerator()) {
    source_ = argument->toGenerator();
    if (!source_.device().is_privateuseone()) {  // the user's choice of a host generator
      source_ = {};
      return;
    }
  } else {
    source_ = default_generator(device);
  }
  uint64_t seed = 0;
  {
    std::lock_guard lock(source_.mutex());
    seed = source_.get<Generator>()->operation_seed();
  }
  if (argument) {
    *argument = at::detail::createCPUGenerator(seed);
    return;
  }
  host_default_mutex().lock();
  at::Generator host = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(host.mutex());
  saved_ = host.clone();
  host.set_current_seed(seed);
}

RandomNumbers::~RandomNumbers() {
  if (!saved_) return;
  {
    at::Generator host = at::detail::getDefaultCPUGenerator();
    std::lock_guard lock(host.mutex());
    host.set_state(saved_->get_state());
  }
  host_default_mutex().unlock();
}

void RandomNumbers::finish(const torch::jit::Stack& stack) {
  if (!source_.defined()) return;
  std::lock_guard lock(source_.mutex());
  source_.get<Generator>()->advance(elements_drawn(stack));
}

}  // namespace torch_sim

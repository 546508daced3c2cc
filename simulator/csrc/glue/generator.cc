#include "glue/generator.h"

#include <ATen/Utils.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "glue/convert.h"

namespace torch_sim {
namespace {

// The finaliser of splitmix64: every bit of the input changes about half of the bits of the result.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Generator::Generator(c10::DeviceIndex device)
    : c10::GeneratorImpl(device_at(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "sim: the offset of a generator must be a multiple of 4, not ",
              offset);
  offset_ = offset;
}

void Generator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateBytes, "sim: a generator's state is ", kStateBytes,
              " bytes (seed and offset), not ", state.numel());
  uint64_t words[2];
  std::memcpy(words, static_cast<const char*>(state.data()), sizeof words);
  seed_ = words[0];
  set_offset(words[1]);
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  at::Tensor state =
      at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  const uint64_t words[2] = {seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), words, sizeof words);
  return state.getIntrusivePtr();
}

// The host's generator uses the low 32 bits of its seed, so the upper half is folded in.
uint64_t Generator::operation_seed() const {
  const uint64_t mixed = mix(mix(seed_) ^ offset_);
  return (mixed ^ (mixed >> 32)) & 0xffffffff;
}

// By whole steps of four, as Philox does.
void Generator::advance(uint64_t count) { offset_ += std::max<uint64_t>((count + 3) / 4, 1) * 4; }

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(int device) {
  static const auto& generators = *[] {
    auto* all = new std::vector<at::Generator>();
    for (int index = 0; index < Runtime::device_count(); ++index)
      all->push_back(at::make_generator<Generator>(static_cast<c10::DeviceIndex>(index)));
    return all;
  }();
  const int index = device < 0 ? current_device() : device;
  TORCH_CHECK(index < static_cast<int>(generators.size()), "sim: there is no device ", index);
  return generators[index];
}

}  // namespace torch_sim

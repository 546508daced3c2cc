#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>

namespace torch_sim {

// Random numbers in the manner of Philox generators: the whole state is a seed and an offset, 16
// bytes, so it is cheap to save, to set and to compare, and DTensor can place each rank's share of
// a tensor at its own offset. The numbers come from a host generator that is seeded anew from
// (seed, offset) for each operation.
class Generator final : public c10::GeneratorImpl {
 public:
  static constexpr int64_t kStateBytes = 16;

  explicit Generator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // A seed for one operation. Hold `mutex_`.
  uint64_t operation_seed() const;
  // Moves on past an operation that drew `count` numbers. Hold `mutex_`.
  void advance(uint64_t count);

 private:
  Generator* clone_impl() const override;

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(int device);

}  // namespace torch_sim

#pragma once
// The key and frame counter of one direction of an encrypted connection.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/security/key.h"

namespace hccl_like {

// One end seals frames and the other opens them in the same order: see sealed_wire.h. Used by one
// thread at a time; allocates only for the next key.
class SealingKey {
 public:
  // 2^20 frames of 64 KiB are 2^32 blocks, far below the limit of AES-GCM.
  static constexpr uint64_t kFramesAKey = 1 << 20;
  static constexpr size_t kTag = 16;

  enum class Direction { kSeal, kOpen };
  SealingKey(const Key& key, Direction direction, uint64_t frames_a_key = kFramesAKey);
  ~SealingKey();
  SealingKey(const SealingKey&) = delete;

  // The tag of the next frame's length.
  bool seal_length(uint32_t length, std::byte* tag);
  bool open_length(uint32_t length, const std::byte* tag);
  // Its bytes in any number of pieces, in place if wanted, then their tag. False on errors.
  bool begin_bytes();
  bool add_bytes(const std::byte* from, size_t bytes, std::byte* to);
  bool finish_sealing(std::byte* tag);
  // False if the tag is wrong.
  bool finish_opening(const std::byte* tag);

 private:
  bool begin(uint64_t nonce);
  bool next_frame();
  bool use(const Key& key);

  struct Context;
  std::unique_ptr<Context> context_;
  const Direction direction_;
  const uint64_t frames_a_key_;
  Key key_;
  uint64_t frame_ = 0;
};

}  // namespace hccl_like

#pragma once
// A wire whose bytes are encrypted: AES-256-GCM frames on any other wire.
//
//   frame:  length u32 | tag of the length | ciphertext, `length` bytes | tag of the ciphertext
//
// Every direction of every connection has a key of its own (derived from the greeting's session
// key), and every frame two nonces, counted and never sent: 2 n for the length of the n-th frame, 2
// n + 1 for its bytes. So a frame that is changed, dropped, doubled, moved or taken from another
// connection is noticed by its tag, the length before anything is expected from it. After
// kFramesAKey frames both ends go on with a key derived from the last one, and the count begins
// anew.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/security/sealing_key.h"
#include "transport/wire/transport.h"
#include "transport/wire/wire.h"

namespace hccl_like {

class SealedWire final : public Wire {
 public:
  static constexpr size_t kFrame = 64 << 10;  // bytes of a frame, at most
  static constexpr size_t kHead = sizeof(uint32_t) + SealingKey::kTag;

  // `session`: of the greeting on `inner`, which carries nothing but frames from now on. `peer` is
  // for error messages.
  SealedWire(std::unique_ptr<Wire> inner, const Key& session, WireSide side, std::string peer,
             uint64_t frames_a_key = SealingKey::kFramesAKey);
  ~SealedWire() override;

  // A frame for which the inner wire has no room is counted as taken once all of it is on its way;
  // until then the same bytes must come again, as those of a message that was begun do.
  size_t write(std::span<const ConstRegion> pieces) override;
  std::span<const std::byte> peek(size_t want = 1) override;
  void release(size_t bytes) override;
  size_t read(std::span<std::byte> into) override;
  const Error* failure() const override;
  bool flush() override;
  bool owes() override { return !ended_ && (out_head_ != out_tail_ || inner_->owes()); }
  bool prepare_sleep(WakeFor wake) override;
  void end_sleep() override;
  std::string_view transport() const override { return transport_; }

 private:
  bool push();
  size_t clear() const { return tail_ - head_; }
  bool fetch();
  bool fetch_head();
  bool decrypt(std::byte* to);
  void open_into_buffer();
  void end(std::string cause);

  std::unique_ptr<Wire> inner_;  // null once something was wrong, so that the peer learns of it
  const std::string transport_, peer_;
  SealingKey sealing_, opening_;

  std::unique_ptr<std::byte[]>
      out_;  // a sealed frame, [out_head_, out_tail_) of which the inner wire has not taken
  size_t out_head_ = 0, out_tail_ = 0;
  size_t owed_ = 0;  // bytes of it that the owner does not know to be taken

  std::unique_ptr<std::byte[]> in_;  // the frame that is coming
  size_t in_bytes_ = 0;
  size_t frame_ = 0;  // how long it is; 0 until that is known

  std::unique_ptr<std::byte[]> buffer_;  // bytes [head_, tail_) are opened and were not taken yet
  size_t head_ = 0, tail_ = 0;
  size_t want_ = 1;
  std::optional<Error> ended_;
};

}  // namespace hccl_like

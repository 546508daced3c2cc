#pragma once
// A wire whose bytes are encrypted: AES-256-GCM frames over any other wire.
//
//   frame:  length u32 | tag of the length | ciphertext, `length` bytes | tag of the ciphertext
//
// Each direction of each connection has its own key, derived from the handshake's session key.
// Frame n uses nonce 2n for its length and 2n + 1 for its bytes; nonces are counted, never sent.
// The tags thus detect a frame that was changed, dropped, repeated, reordered or taken from another
// connection. The length is verified before it is used. After kFramesAKey frames both ends derive
// the next key from the last one and restart the count.
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
  static constexpr size_t kFrame = 64 << 10;  // maximum bytes of a frame
  static constexpr size_t kHead = sizeof(uint32_t) + SealingKey::kTag;

  // `session`: the session key of the handshake on `inner`, which carries only frames from now on.
  // `peer` is for error messages.
  SealedWire(std::unique_ptr<Wire> inner, const Key& session, WireSide side, std::string peer,
             uint64_t frames_a_key = SealingKey::kFramesAKey);
  ~SealedWire() override;

  // If the inner wire takes only part of a frame, the frame counts as taken once all of it is
  // written. Until then the caller must pass the same bytes again, as for a partly written message.
  size_t write(std::span<const ConstRegion> pieces) override;
  std::span<const std::byte> peek(size_t want = 1) override;
  void release(size_t bytes) override;
  size_t read(std::span<std::byte> into) override;
  const Error* failure() const override;
  bool flush() override;
  bool owes() override { return !ended_ && (out_head_ != out_tail_ || inner_->owes()); }
  bool prepare_sleep(WakeFor wake) override;
  void end_sleep() override;

 private:
  bool push();
  size_t clear() const { return tail_ - head_; }
  bool fetch();
  bool fetch_head();
  bool decrypt(std::byte* to);
  void open_into_buffer();
  void end(std::string cause);

  std::unique_ptr<Wire> inner_;  // null after an error, so that the peer notices
  const std::string peer_;
  SealingKey sealing_, opening_;

  std::unique_ptr<std::byte[]>
      out_;  // a sealed frame; the inner wire has yet to take [out_head_, out_tail_)
  size_t out_head_ = 0, out_tail_ = 0;
  size_t owed_ = 0;  // its bytes not yet reported as taken

  std::unique_ptr<std::byte[]> in_;  // the incoming frame
  size_t in_bytes_ = 0;
  size_t frame_ = 0;  // its length; 0 until known

  std::unique_ptr<std::byte[]> buffer_;  // [head_, tail_): decrypted bytes not taken yet
  size_t head_ = 0, tail_ = 0;
  size_t want_ = 1;
  std::optional<Error> ended_;
};

}  // namespace hccl_like

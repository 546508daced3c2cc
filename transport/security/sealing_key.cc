#include "transport/security/sealing_key.h"

#include <openssl/evp.h>

#include <cstring>

#include "core/base/error.h"

namespace hccl_like {
namespace {

constexpr size_t kNonceBytes = 12;

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

struct SealingKey::Context {
  ~Context() { EVP_CIPHER_CTX_free(cipher); }
  EVP_CIPHER_CTX* const cipher = EVP_CIPHER_CTX_new();
};

SealingKey::SealingKey(const Key& key, Direction direction, uint64_t frames_a_key)
    : context_(std::make_unique<Context>()),
      direction_(direction),
      frames_a_key_(frames_a_key),
      key_(key) {
  if (context_->cipher == nullptr ||
      EVP_CipherInit_ex(context_->cipher, EVP_aes_256_gcm(), nullptr, nullptr, nullptr,
                        direction_ == Direction::kSeal ? 1 : 0) != 1 ||
      !use(key_))
    throw_error(ErrorCode::kSystem, "libcrypto cannot encrypt (AES-256-GCM)");
}

SealingKey::~SealingKey() = default;

bool SealingKey::use(const Key& key) {
  return EVP_CipherInit_ex(context_->cipher, nullptr, nullptr,
                           reinterpret_cast<const unsigned char*>(key.bytes().data()), nullptr,
                           -1) == 1;
}

bool SealingKey::begin(uint64_t nonce) {
  unsigned char bytes[kNonceBytes] = {};
  std::memcpy(bytes + kNonceBytes - sizeof nonce, &nonce, sizeof nonce);
  return EVP_CipherInit_ex(context_->cipher, nullptr, nullptr, nullptr, bytes, -1) == 1;
}

// The length is authenticated but not encrypted.
bool SealingKey::seal_length(uint32_t length, std::byte* tag) {
  int done = 0;
  unsigned char none[kTag];
  return begin(2 * frame_) &&
         EVP_CipherUpdate(context_->cipher, nullptr, &done,
                          reinterpret_cast<const unsigned char*>(&length), sizeof length) == 1 &&
         EVP_CipherFinal_ex(context_->cipher, none, &done) == 1 &&
         EVP_CIPHER_CTX_ctrl(context_->cipher, EVP_CTRL_AEAD_GET_TAG, kTag, raw(tag)) == 1;
}

bool SealingKey::open_length(uint32_t length, const std::byte* tag) {
  int done = 0;
  unsigned char none[kTag];
  return begin(2 * frame_) &&
         EVP_CipherUpdate(context_->cipher, nullptr, &done,
                          reinterpret_cast<const unsigned char*>(&length), sizeof length) == 1 &&
         EVP_CIPHER_CTX_ctrl(context_->cipher, EVP_CTRL_AEAD_SET_TAG, kTag,
                             const_cast<unsigned char*>(raw(tag))) == 1 &&
         EVP_CipherFinal_ex(context_->cipher, none, &done) == 1;
}

bool SealingKey::begin_bytes() { return begin(2 * frame_ + 1); }

bool SealingKey::add_bytes(const std::byte* from, size_t bytes, std::byte* to) {
  int done = 0;
  return EVP_CipherUpdate(context_->cipher, raw(to), &done, raw(from), static_cast<int>(bytes)) ==
             1 &&
         static_cast<size_t>(done) == bytes;
}

bool SealingKey::finish_sealing(std::byte* tag) {
  int done = 0;
  unsigned char none[kTag];
  return EVP_CipherFinal_ex(context_->cipher, none, &done) == 1 &&
         EVP_CIPHER_CTX_ctrl(context_->cipher, EVP_CTRL_AEAD_GET_TAG, kTag, raw(tag)) == 1 &&
         next_frame();
}

bool SealingKey::finish_opening(const std::byte* tag) {
  int done = 0;
  unsigned char none[kTag];
  return EVP_CIPHER_CTX_ctrl(context_->cipher, EVP_CTRL_AEAD_SET_TAG, kTag,
                             const_cast<unsigned char*>(raw(tag))) == 1 &&
         EVP_CipherFinal_ex(context_->cipher, none, &done) == 1 && next_frame();
}

bool SealingKey::next_frame() {
  if (++frame_ < frames_a_key_) return true;
  frame_ = 0;
  key_ = key_.derive("next key", {});
  return use(key_);
}

}  // namespace hccl_like

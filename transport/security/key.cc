#include "transport/security/key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>

#include <memory>

#include "core/base/error.h"

namespace hccl_like {
namespace {

// Domain separation: the prefix of every authenticated text.
constexpr std::string_view kDomain = "hccl-like 2";

void append_counted(std::string& text, std::string_view part) {
  for (int shift = 56; shift >= 0; shift -= 8)
    text += static_cast<char>(static_cast<uint64_t>(part.size()) >> shift);
  text.append(part);
}

std::string message(std::string_view label, std::initializer_list<std::string_view> parts) {
  std::string text;
  append_counted(text, kDomain);
  append_counted(text, label);
  for (const std::string_view part : parts) append_counted(text, part);
  return text;
}

OSSL_PARAM octets(const char* name, std::string_view bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(bytes.data()), bytes.size());
}

Key hkdf(int mode, std::string_view key, std::string_view extra_name, std::string_view extra) {
  const std::unique_ptr<EVP_KDF, void (*)(EVP_KDF*)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                         EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, void (*)(EVP_KDF_CTX*)> context(EVP_KDF_CTX_new(kdf.get()),
                                                                     EVP_KDF_CTX_free);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      octets(OSSL_KDF_PARAM_KEY, key),
      octets(extra_name.data(), extra),
      OSSL_PARAM_construct_end(),
  };
  unsigned char bytes[kKeyBytes];
  if (context == nullptr || EVP_KDF_derive(context.get(), bytes, sizeof bytes, parameters) != 1)
    throw_error(ErrorCode::kSystem, "libcrypto cannot derive a key (HKDF with SHA-256)");
  const Key derived(std::string_view(reinterpret_cast<const char*>(bytes), sizeof bytes));
  ::explicit_bzero(bytes, sizeof bytes);
  return derived;
}

}  // namespace

Key::Key(std::string_view bytes) {
  if (bytes.size() != kKeyBytes) throw_misuse("a key has 32 bytes");
  bytes.copy(reinterpret_cast<char*>(bytes_.data()), kKeyBytes);
}

Key::~Key() { ::explicit_bzero(bytes_.data(), bytes_.size()); }

std::string Key::tag(std::string_view label, std::initializer_list<std::string_view> parts) const {
  const std::string text = message(label, parts);
  std::string tag(kTagBytes, '\0');
  unsigned length = 0;
  if (HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(tag.data()), &length) == nullptr ||
      length != kTagBytes)
    throw_error(ErrorCode::kSystem, "libcrypto cannot compute a proof (HMAC with SHA-256)");
  return tag;
}

bool Key::proves(std::string_view tag, std::string_view label,
                 std::initializer_list<std::string_view> parts) const {
  const std::string right = this->tag(label, parts);
  return tag.size() == right.size() && CRYPTO_memcmp(tag.data(), right.data(), right.size()) == 0;
}

Key Key::derive(std::string_view label, std::initializer_list<std::string_view> parts) const {
  return hkdf(EVP_KDF_HKDF_MODE_EXPAND_ONLY, bytes(), OSSL_KDF_PARAM_INFO, message(label, parts));
}

Key Key::from_secret(std::string_view secret) {
  return hkdf(EVP_KDF_HKDF_MODE_EXTRACT_ONLY, secret, OSSL_KDF_PARAM_SALT, kDomain);
}

}  // namespace hccl_like

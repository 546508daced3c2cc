#pragma once
// 256-bit keys with HMAC-SHA256 and HKDF of OpenSSL's libcrypto.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace hccl_like {

inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kTagBytes = 32;

// A value; wiped on destruction.
class Key {
 public:
  Key() = default;
  explicit Key(std::string_view bytes);  // kKeyBytes of them
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();

  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

  // The HMAC of `parts`, each preceded by its length so that different lists never collide; `label`
  // names the purpose. Returns kTagBytes bytes. Throws kSystem if libcrypto fails.
  std::string tag(std::string_view label, std::initializer_list<std::string_view> parts) const;
  // Verifies a tag in constant time.
  bool proves(std::string_view tag, std::string_view label,
              std::initializer_list<std::string_view> parts) const;
  // An independent key (HKDF-Expand).
  Key derive(std::string_view label, std::initializer_list<std::string_view> parts) const;
  // From a secret of any length and format (HKDF-Extract).
  static Key from_secret(std::string_view secret);

 private:
  std::array<uint8_t, kKeyBytes> bytes_{};
};

}  // namespace hccl_like

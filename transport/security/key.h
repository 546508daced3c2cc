#pragma once
// Keys of 256 bits, and what is computed with them: HMAC-SHA256 and HKDF of OpenSSL's libcrypto.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace hccl_like {

inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kTagBytes = 32;

// A value; wiped when it goes.
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

  // What only owners of the key can compute from `parts`: kTagBytes bytes. Each part goes in with
  // its length, so that no two lists of parts are the same text; `label` says what the tag is for.
  // Throws kSystem if libcrypto fails.
  std::string tag(std::string_view label, std::initializer_list<std::string_view> parts) const;
  // Compares in constant time.
  bool proves(std::string_view tag, std::string_view label,
              std::initializer_list<std::string_view> parts) const;
  // Another key, of which nobody can tell that it comes from this one (HKDF-Expand).
  Key derive(std::string_view label, std::initializer_list<std::string_view> parts) const;
  // From a secret of any length and shape (HKDF-Extract).
  static Key from_secret(std::string_view secret);

 private:
  std::array<uint8_t, kKeyBytes> bytes_{};
};

}  // namespace hccl_like

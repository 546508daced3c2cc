#pragma once
// A secret text: wiped on destruction, printed as "(set)".
#include <string>
#include <string_view>

namespace hccl_like {

class Secret {
 public:
  static constexpr size_t kLeastBytes = 32;
  static constexpr size_t kMostBytes = 4096;

  Secret() = default;
  Secret(const Secret&) = default;
  Secret(Secret&&) noexcept = default;
  Secret& operator=(const Secret&);
  Secret& operator=(Secret&&) noexcept;
  ~Secret();

  // Empty text: no secret. Throws kMisuse, without the text, if shorter than kLeastBytes.
  static Secret parse(std::string_view text);
  // Reads a regular file without trailing white space. Throws kMisuse if the file is unreadable,
  // not owned by this user or root, accessible to others, or holds no secret.
  static Secret read_file(const std::string& path);

  bool empty() const noexcept { return text_.empty(); }
  std::string_view text() const noexcept { return text_; }
  // "(set)" or empty.
  std::string to_string() const { return empty() ? "" : "(set)"; }
  friend bool operator==(const Secret&, const Secret&) = default;

 private:
  void wipe() noexcept;
  std::string text_;
};

}  // namespace hccl_like

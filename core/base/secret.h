#pragma once
// A text that nobody but this process may see: it is wiped when it goes, and prints as "(set)".
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

  // Throws kMisuse, without quoting the text, if it is shorter than kLeastBytes. Empty text: no
  // secret.
  static Secret parse(std::string_view text);
  // The content of a regular file without the white space at its end. Throws kMisuse, with a
  // sentence, if the file cannot be read, belongs to somebody else than this user or root, may be
  // read or written by others, or holds no secret.
  static Secret read_file(const std::string& path);

  bool empty() const noexcept { return text_.empty(); }
  std::string_view text() const noexcept { return text_; }
  // For people: "(set)", or empty.
  std::string to_string() const { return empty() ? "" : "(set)"; }
  friend bool operator==(const Secret&, const Secret&) = default;

 private:
  void wipe() noexcept;
  std::string text_;
};

}  // namespace hccl_like

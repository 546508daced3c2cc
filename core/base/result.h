#pragma once
// A value, or the Error that explains its absence.
#include <optional>
#include <utility>
#include <variant>

#include "core/base/error.h"

namespace hccl_like {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const noexcept { return content_.index() == 0; }
  // Throws the error as an Exception if there is no value.
  T& value() & {
    throw_unless_ok();
    return std::get<0>(content_);
  }
  T value() && {
    throw_unless_ok();
    return std::get<0>(std::move(content_));
  }
  // Requires !ok().
  const Error& error() const { return std::get<1>(content_); }

 private:
  void throw_unless_ok() const {
    if (!ok()) throw Exception(error());
  }

  std::variant<T, Error> content_;
};

// For operations that return std::optional<Error>.
inline void throw_if(const std::optional<Error>& error) {
  if (error) throw Exception(*error);
}

}  // namespace hccl_like

#include "core/error.h"

#include <array>
#include <cerrno>
#include <ostream>
#include <system_error>
#include <utility>

namespace hccl_like {
namespace {

// Indexed by ErrorCode.
constexpr std::array<std::string_view, 8> kNames{"misuse",   "timeout", "peer lost", "aborted",
                                                 "mismatch", "system",  "device",    "unsupported"};

}  // namespace

std::string_view name(ErrorCode code) noexcept { return kNames[static_cast<size_t>(code)]; }

std::string to_string(const Error& error) {
  std::string text(name(error.code));
  if (error.peer >= 0) text += " (rank " + std::to_string(error.peer) + ")";
  return text + ": " + error.message;
}

std::ostream& operator<<(std::ostream& out, const Error& error) { return out << to_string(error); }

Exception::Exception(Error error)
    : std::runtime_error(error.code == ErrorCode::kMisuse ? error.message : to_string(error)),
      error_(std::move(error)) {}

void throw_error(ErrorCode code, std::string message) {
  throw Exception(Error{.code = code, .message = std::move(message)});
}

void throw_system(std::string what) {
  const int error_number = errno;
  throw_error(ErrorCode::kSystem, std::move(what) + ": " + errno_text(error_number));
}

void throw_misuse(std::string message) { throw_error(ErrorCode::kMisuse, std::move(message)); }

std::string errno_text(int error_number) {
  return std::generic_category().message(error_number) + " (errno " + std::to_string(error_number) +
         ")";
}

}  // namespace hccl_like

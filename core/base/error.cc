#include "core/base/error.h"

#include <array>
#include <cerrno>
#include <ostream>
#include <system_error>
#include <utility>

namespace hccl_like {
namespace {

constexpr std::array<std::string_view, 9> kNames{"misuse",  "timeout",     "peer lost",
                                                 "aborted", "mismatch",    "system",
                                                 "device",  "unsupported", "NaN"};

// Indexed by ErrorCode. docs/errors.md lists these numbers: they never change.
constexpr std::array<int, 9> kHundreds{101, 200, 300, 400, 500, 600, 700, 102, 800};

}  // namespace

std::string_view name(ErrorCode code) noexcept { return kNames[static_cast<size_t>(code)]; }

std::optional<ErrorCode> code_in(std::string_view text) noexcept {
  for (size_t i = 0; i < kNames.size(); ++i) {
    const bool begins = text.substr(0, kNames[i].size()) == kNames[i];
    const std::string_view rest = begins ? text.substr(kNames[i].size()) : std::string_view();
    if (rest.substr(0, 2) == ": " || rest.substr(0, 2) == " (") return static_cast<ErrorCode>(i);
  }
  return std::nullopt;
}

ErrorCode cause(const Error& error) noexcept { return error.told.value_or(error.code); }

int number(const Error& error) noexcept {
  if (error.number != 0) return error.number;
  ErrorCode why = cause(error);
  const bool of_one_rank = why == ErrorCode::kMisuse || why == ErrorCode::kUnsupported;
  if (of_one_rank && error.told) why = ErrorCode::kAborted;
  return kHundreds[static_cast<size_t>(why)] + (error.told ? 2 : of_one_rank ? 0 : 1);
}

// An error that another rank reported takes the name of its cause. Messages of timeouts, aborts and
// mismatches already name their ranks.
std::string to_string(const Error& error) {
  const ErrorCode why = cause(error);
  std::string text(name(why));
  const bool names_ranks =
      why == ErrorCode::kTimeout || why == ErrorCode::kAborted || why == ErrorCode::kMismatch;
  if (error.peer >= 0 && !names_ranks) text += " (rank " + std::to_string(error.peer) + ")";
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

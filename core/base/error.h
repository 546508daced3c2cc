#pragma once
// Errors: set-up and misuse throw an Exception; a running operation completes with an Error value.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hccl_like {

enum class ErrorCode : uint8_t {
  kMisuse,       // the caller broke a rule; the message names the rule and the remedy
  kTimeout,      // a deadline passed
  kPeerLost,     // a rank died, or its connection broke
  kAborted,      // an abort was requested, here or on another rank
  kMismatch,     // ranks disagree: versions, sizes, the order of operations
  kSystem,       // a system call failed
  kDevice,       // the device or its plugin failed
  kUnsupported,  // this combination does not exist
  kNan,          // an input has a NaN and the NaN check is on
};

// "timeout", "peer lost", ...
std::string_view name(ErrorCode code) noexcept;
// Parses the code at the beginning of a to_string() text.
std::optional<ErrorCode> code_in(std::string_view text) noexcept;

// The message is one sentence on one line.
struct Error {
  ErrorCode code = ErrorCode::kSystem;
  std::string message;
  int peer = -1;  // the rank concerned; -1: none, or unknown
  // For kAborted reported by another rank: the cause on that rank.
  std::optional<ErrorCode> told = std::nullopt;
  int number = 0;  // see number(); 0: the usual one

  friend bool operator==(const Error&, const Error&) = default;
};

// The cause, whichever rank detected it first.
ErrorCode cause(const Error& error) noexcept;
// The number in docs/errors.md: hundreds for the cause, plus 1 if detected here, 2 if remote.
int number(const Error& error) noexcept;
// "peer lost (rank 3): the connection was closed".
std::string to_string(const Error& error);
std::ostream& operator<<(std::ostream& out, const Error& error);

// what() is to_string(error()), except for kMisuse: the message alone.
class Exception : public std::runtime_error {
 public:
  explicit Exception(Error error);
  const Error& error() const noexcept { return error_; }
  ErrorCode code() const noexcept { return error_.code; }

 private:
  Error error_;
};

[[noreturn]] void throw_error(ErrorCode code, std::string message);
// `what` names the attempt, e.g. "cannot listen on 10.0.0.1:4000". Appends the text of errno: call
// before errno can change.
[[noreturn]] void throw_system(std::string what);
[[noreturn]] void throw_misuse(std::string message);

// "Connection refused (errno 111)". Thread-safe, unlike strerror.
std::string errno_text(int error_number);

}  // namespace hccl_like

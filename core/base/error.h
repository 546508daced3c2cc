#pragma once
// How things fail: set-up and misuse throw an Exception; a running operation completes with an
// Error value.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hccl_like {

enum class ErrorCode : uint8_t {
  kMisuse,       // the caller broke a rule; the message says which and what to do
  kTimeout,      // a deadline passed
  kPeerLost,     // a rank died, or its connection broke
  kAborted,      // somebody asked for the end, here or on another rank
  kMismatch,     // ranks do not agree: versions, sizes, the order of operations
  kSystem,       // the operating system refused
  kDevice,       // the device or its plugin failed
  kUnsupported,  // this combination does not exist
  kNan,          // an input has a NaN, and somebody wanted to know
};

// "timeout", "peer lost", ...
std::string_view name(ErrorCode code) noexcept;
// The code that a text made by to_string() begins with, if it is one.
std::optional<ErrorCode> code_in(std::string_view text) noexcept;

// What went wrong, as a value. The message is one line and a sentence.
struct Error {
  ErrorCode code = ErrorCode::kSystem;
  std::string message;
  int peer = -1;  // the rank it is about; -1: none, or not known
  // Of a kAborted that another rank told of: what befell that one.
  std::optional<ErrorCode> told = std::nullopt;
  int number = 0;  // see number(); 0: the usual one

  friend bool operator==(const Error&, const Error&) = default;
};

// What befell the group, whoever saw it first.
ErrorCode cause(const Error& error) noexcept;
// How docs/errors.md lists it: hundreds for the cause, then 1 if it was seen here and 2 if another
// rank told of it.
int number(const Error& error) noexcept;
// "peer lost (rank 3): the connection was closed".
std::string to_string(const Error& error);
std::ostream& operator<<(std::ostream& out, const Error& error);

// An Error on its way up. what() is to_string(error()) for every code but kMisuse, whose message
// stands alone.
class Exception : public std::runtime_error {
 public:
  explicit Exception(Error error);
  const Error& error() const noexcept { return error_; }
  ErrorCode code() const noexcept { return error_.code; }

 private:
  Error error_;
};

[[noreturn]] void throw_error(ErrorCode code, std::string message);
// `what` names the attempt, e.g. "cannot listen on 10.0.0.1:4000"; the text of errno is appended,
// so call it before anything else can change errno.
[[noreturn]] void throw_system(std::string what);
[[noreturn]] void throw_misuse(std::string message);

// "Connection refused (errno 111)". Thread-safe, unlike strerror.
std::string errno_text(int error_number);

}  // namespace hccl_like

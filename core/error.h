#pragma once
// How things fail: set-up and misuse throw an Exception; a running operation completes with an
// Error value.
#include <cstdint>
#include <iosfwd>
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
};

// "timeout", "peer lost", ...
std::string_view name(ErrorCode code) noexcept;

// What went wrong, as a value. The message is one line and a sentence.
struct Error {
  ErrorCode code = ErrorCode::kSystem;
  std::string message;
  int peer = -1;  // the rank it is about; -1: none, or not known

  friend bool operator==(const Error&, const Error&) = default;
};

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

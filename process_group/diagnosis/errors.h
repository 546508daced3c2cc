#pragma once
// The border at which our errors become torch's.
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {

// Errors with a number of their own: a wait() that was given a time-out; a rank that never came, or
// could not be reached, while a group is made.
inline constexpr int kWaitTimeout = 203, kNeverCame = 211, kNotReached = 311;

// "HCCL-LIKE-301", by which docs/errors.md lists it.
std::string label(const Error& error);

// Throws the c10 error that a torch user expects for `error`: ValueError for misuse, TypeError for
// a combination that does not exist, DistBackendError for whatever befell a communicator. `where`
// comes first in the sentence: "rank 1 of group 'default_pg'".
[[noreturn]] void throw_torch_error(const Error& error, const std::string& where);

// The same while a group is being made, when nothing but the way to the others can have failed:
// DistStoreError if they never came, DistNetworkError if they could not be reached.
[[noreturn]] void throw_torch_setup_error(const Error& error, const std::string& where);

// Runs `body`; what it throws of ours reaches the caller as torch's. `where` is the text itself or,
// where making it costs something, a function that makes it.
template <class Where, class Body>
decltype(auto) translated(const Where& where, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Exception& exception) {
    if constexpr (std::is_invocable_v<const Where&>) {
      throw_torch_error(exception.error(), where());
    } else {
      throw_torch_error(exception.error(), where);
    }
  }
}

// Runs `body`; where the system refuses it something, the error names this rank, whose limits are
// to be looked at.
template <class Body>
decltype(auto) naming_rank(int rank, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Exception& exception) {
    if (exception.code() != ErrorCode::kSystem || exception.error().peer >= 0) throw;
    Error named = exception.error();
    named.peer = rank;
    throw Exception(std::move(named));
  }
}

}  // namespace hccl_like

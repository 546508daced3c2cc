#pragma once
// Converts hccl-like errors into torch errors.
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {

// Special numbers: a wait() timeout; a rank missing, or unreachable, during group creation.
inline constexpr int kWaitTimeout = 203, kNeverCame = 211, kNotReached = 311;

// "HCCL-LIKE-301", the key in docs/errors.md.
std::string label(const Error& error);

// Throws ValueError for misuse, TypeError for an unsupported combination, DistBackendError for
// failures of a communicator. `where` starts the message: "rank 1 of group 'default_pg'".
[[noreturn]] void throw_torch_error(const Error& error, const std::string& where);

// During group creation: DistStoreError for missing ranks, DistNetworkError for unreachable ranks.
[[noreturn]] void throw_torch_setup_error(const Error& error, const std::string& where);

// Rethrows Exceptions of `body` as torch errors. `where` is a string or a function that returns
// one.
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

// Runs `body` and adds this rank to kSystem errors that name no rank, because its limits apply.
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

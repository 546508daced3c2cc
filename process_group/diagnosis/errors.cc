#include "process_group/diagnosis/errors.h"

#include <c10/util/Exception.h>

namespace hccl_like {
namespace {

// The timeout wording of ProcessGroupNCCL, which job monitors match.
std::string sentence(const Error& error, const std::string& where) {
  if (error.code == ErrorCode::kMisuse || error.code == ErrorCode::kUnsupported) {
    return where + ": " + error.message;
  }
  const std::string numbered = where + " [" + label(error) + "]";
  if (error.code == ErrorCode::kTimeout) {
    return numbered + " caught collective operation timeout: " + error.message;
  }
  return numbered + ": " + to_string(error);
}

}  // namespace

std::string label(const Error& error) { return "HCCL-LIKE-" + std::to_string(number(error)); }

void throw_torch_error(const Error& error, const std::string& where) {
  switch (error.code) {
    case ErrorCode::kMisuse:
      C10_THROW_ERROR(ValueError, sentence(error, where));
    case ErrorCode::kUnsupported:
      C10_THROW_ERROR(TypeError, sentence(error, where));
    default:
      C10_THROW_ERROR(DistBackendError, sentence(error, where));
  }
}

void throw_torch_setup_error(const Error& error, const std::string& where) {
  Error during = error;
  switch (error.code) {
    case ErrorCode::kTimeout:
      during.number = kNeverCame;
      C10_THROW_ERROR(DistStoreError, where + " [" + label(during) + "]: " + to_string(error));
    case ErrorCode::kPeerLost:
    case ErrorCode::kSystem:
      during.number = error.code == ErrorCode::kPeerLost ? kNotReached : 0;
      C10_THROW_ERROR(DistNetworkError, where + " [" + label(during) + "]: " + to_string(error));
    default:
      throw_torch_error(error, where);
  }
}

}  // namespace hccl_like

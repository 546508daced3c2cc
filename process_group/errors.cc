#include "process_group/errors.h"

#include <c10/util/Exception.h>

namespace hccl_like {
namespace {

// Tools that watch training jobs know a time-out by these words; they are what NCCL's process group says.
std::string sentence(const Error& error, const std::string& where) {
  if (error.code == ErrorCode::kMisuse || error.code == ErrorCode::kUnsupported) {
    return where + ": " + error.message;
  }
  if (error.code == ErrorCode::kTimeout) {
    return where + " caught collective operation timeout : " + to_string(error);
  }
  return where + ": " + to_string(error);
}

}  // namespace

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
  switch (error.code) {
    case ErrorCode::kTimeout:
      C10_THROW_ERROR(DistStoreError, where + ": " + to_string(error));
    case ErrorCode::kPeerLost:
    case ErrorCode::kSystem:
      C10_THROW_ERROR(DistNetworkError, where + ": " + to_string(error));
    default:
      throw_torch_error(error, where);
  }
}

}  // namespace hccl_like

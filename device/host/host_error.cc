#include "device/host/host_error.h"

#include <utility>

namespace hccl_like::host {
namespace {

thread_local std::string last_failure;

}  // namespace

int fail(int status, std::string sentence) {
  last_failure = std::move(sentence);
  return status;
}

const char* last_error() { return last_failure.c_str(); }

}  // namespace hccl_like::host

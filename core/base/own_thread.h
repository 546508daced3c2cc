#pragma once
// Threads of the library: signals blocked, exceptions logged instead of terminating the process.
#include <pthread.h>

#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/signals.h"

namespace hccl_like {

// `purpose` completes "the thread that ...". An exception from `work` ends the thread with a log
// line. Throws kSystem, with a remedy, if the system cannot create a thread.
template <class Work>
std::thread own_thread(const char* purpose, Work work) {
  const SignalsBlocked blocked;
  try {
    return std::thread([purpose, work = std::move(work)]() mutable {
      try {
        work();
      } catch (const std::exception& error) {
        log_warn(std::string("the thread that ") + purpose + " has ended: " + error.what());
      }
    });
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::kSystem,
                std::string("cannot start the thread that ") + purpose + ": " + error.what() +
                    "; allow more threads (ulimit -u, the container's or control "
                    "group's pids limit), or start fewer processes");
  }
}

}  // namespace hccl_like

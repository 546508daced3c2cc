#pragma once
// Threads of the library's own in somebody else's program: they take no signals, and nothing that
// is thrown in them ends the process.
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

// `purpose` completes "the thread that ...". `work` is to handle what it can; what it lets go ends
// the thread, and is logged. Throws kSystem, with what to do, if the system gives no thread.
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

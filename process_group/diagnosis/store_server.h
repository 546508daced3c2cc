#pragma once
// Detects an exited store server without a request: torch's client logs a page on failed requests.
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hccl_like {

// True, with one log line, for a TCPStore whose server closed the connection. Any thread.
bool server_has_gone(c10d::Store& store);

}  // namespace hccl_like

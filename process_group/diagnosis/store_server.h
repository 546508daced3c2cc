#pragma once
// Whether the process that serves a store is still there, without asking the store: torch's client
// writes a page about a server that has gone.
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hccl_like {

// True if this is a TCPStore whose connection the server has closed; the log has a line about it
// then, once. Sends nothing. Any thread.
bool server_has_gone(c10d::Store& store);

}  // namespace hccl_like

#pragma once
// Fuzz targets: a process of this host changes the memory, or writes to the socket, that it shares
// with this process.
#include "tests/fuzz/targets.h"

namespace hccl_like::fuzz {

// Both ends of a ring, while somebody else writes its indices.
void ring(Input input);
std::vector<Bytes> ring_seeds();
// How a long message is shared out, while somebody else writes what both ends keep of it.
void slot(Input input);
std::vector<Bytes> slot_seeds();
// Bytes and descriptors of the handshake of a connection.
void handshake(Input input);
std::vector<Bytes> handshake_seeds();

}  // namespace hccl_like::fuzz

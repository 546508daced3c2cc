#pragma once
// Fuzz targets: bytes that a peer, or an attacker between the peers, writes on wires built on other
// wires.
#include "tests/fuzz/targets.h"

namespace hccl_like::fuzz {

// Frames of an encrypted connection: what is opened is what the peer has sealed, in that order, up
// to the first byte that is not.
void sealed_frames(Input input);
std::vector<Bytes> sealed_frame_seeds();
// Blocks of a message-passing library.
void blocks(Input input);
std::vector<Bytes> block_seeds();
// A greeting on a transport's own wire, of either side: nobody without the key comes to its end.
void wire_greeting(Input input);
std::vector<Bytes> wire_greeting_seeds();

}  // namespace hccl_like::fuzz

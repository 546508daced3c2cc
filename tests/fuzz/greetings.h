#pragma once
// Fuzz targets: bytes that strangers send to a listener or write into the store.
#include "tests/fuzz/targets.h"

namespace hccl_like::fuzz {

// A hello: believed only if it is the one that somebody with the key has made.
void hello(Input input);
std::vector<Bytes> hellos();
// An answer, to a hello of ours, and a commit, to an answer of ours: neither is ever believed, as
// they do not know what was drawn.
void replies(Input input);
std::vector<Bytes> reply_seeds();
// A value of the store.
void sealed(Input input);
std::vector<Bytes> sealed_seeds();

}  // namespace hccl_like::fuzz

#pragma once
// The compressed messages of one round of one slice.
#include <cstddef>
#include <vector>

#include "device/compress/compress.h"
#include "device/reduce/reduce.h"
#include "transport/message/pieces.h"

namespace hccl_like {

// Copies chunks through memory of its own, in which they are encoded. A message of several chunks
// is these chunks, encoded one after the other. Driver only.
class CompressedMessages {
 public:
  // Starts a round. `bytes`: of all its messages, encoded. The last round's messages are over.
  void begin(const Codec& codec, size_t bytes);
  // Appends `chunk`, encoded, to the memory of a message to send. `keeps`: the chunk's memory
  // becomes what its receivers decode.
  void send(const Pieces& chunk, bool keeps, Pieces& message);
  // Appends memory for an encoded chunk to a message to receive. From that, finish() makes
  // into = decoded, or, with `combine`, into = operand op decoded.
  void receive(Pieces into, Pieces operand, Combine combine, Pieces& message);
  // All messages have arrived.
  void finish();

 private:
  struct Arrival {
    const std::byte* from;
    Pieces into, operand;
    Combine combine;
  };
  std::byte* take(size_t bytes);

  const Codec* codec_ = nullptr;
  std::vector<std::byte> memory_;  // grows only
  size_t used_ = 0;
  std::vector<Arrival> arrivals_;
};

// `to` = what a receiver of `from` decodes. They are the same memory, or do not overlap.
void round_to_codec(const Codec& codec, const Pieces& from, const Pieces& to);

}  // namespace hccl_like

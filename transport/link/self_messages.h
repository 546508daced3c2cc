#pragma once
// Messages from a rank to itself: matched by tag, copied once.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/link/link.h"
#include "transport/message/fifo.h"
#include "transport/message/tag_table.h"

namespace hccl_like {

// Driver only. Has Link's contract for post(), arrived(), cancel() and take_mismatch(), but neither
// buffers nor progress(): the second post() copies the message and counts down both ends.
class SelfMessages {
 public:
  void post(Send& send);
  void post(Recv& recv);
  bool arrived(const Tag& tag, size_t* bytes) const;
  void cancel(uint64_t communicator);
  std::optional<Link::Mismatch> take_mismatch();

 private:
  // The end that was posted first; exactly one is set.
  struct Posted {
    Send* send = nullptr;
    Recv* recv = nullptr;
  };
  void exchange(Send& send, Recv& recv);

  TagTable<Posted> posted_;
  Fifo<Link::Mismatch> mismatches_;
};

}  // namespace hccl_like

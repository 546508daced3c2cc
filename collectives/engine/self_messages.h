#pragma once
// Messages from a rank to itself: matched by tag as those between two ranks are, and copied once.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/link/link.h"
#include "transport/message/fifo.h"
#include "transport/message/tag_table.h"

namespace hccl_like {

// Stands where two ranks have a Link, with its contract for post(), arrived(), cancel() and
// take_mismatch(), except that nothing is buffered and nothing waits for progress(): the message is
// copied, and both ends are counted down, inside the second post(). Used by the driver only.
class SelfMessages {
 public:
  void post(Send& send);
  void post(Recv& recv);
  bool arrived(const Tag& tag, size_t* bytes) const;
  void cancel(uint64_t communicator);
  std::optional<Link::Mismatch> take_mismatch();

 private:
  // The end that came first; one of the two is set.
  struct Posted {
    Send* send = nullptr;
    Recv* recv = nullptr;
  };
  void exchange(Send& send, Recv& recv);

  TagTable<Posted> posted_;
  Fifo<Link::Mismatch> mismatches_;
};

}  // namespace hccl_like

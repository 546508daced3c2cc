// Models the end that gives up a long message while the other end copies a block of it
// (transport/rendezvous/rendezvous_slot.h), in every execution. The receiver never counts a block
// that it copied from memory in use for another purpose.
#include <gtest/gtest.h>

#include <memory>

#include "tests/model/modelled_std.h"
#include "tests/model/verdict.h"
#include "transport/rendezvous/rendezvous_slot.h"

namespace hccl_like::model {
namespace {

struct Shared {
  RendezvousSlot slot;
  Atomic<uint64_t> memory{1};  // of the sender
};

// The sender's timeout with a receiver that is at work is at an end (SharedRendezvous::give_up).
Verdict gives_up(Flaw flaw = {}) {
  return Explorer::explore(
      [](Explorer& explorer) {
        const auto shared = std::make_shared<Shared>();
        explorer.thread("sender", [=] {
          Claims(shared->slot, End::kSender).close();
          shared->memory.store(2, std::memory_order_relaxed);
        });
        explorer.thread("receiver", [=] {
          Claims claims(shared->slot, End::kReceiver);
          if (!claims.take(/*blocks=*/1)) return;
          const uint64_t copied = shared->memory.load(std::memory_order_relaxed);
          if (claims.closed()) return claims.put_back();
          claims.count();
          check(copied == 1, "a block is counted that is not of the message");
        });
      },
      flaw);
}

TEST(RendezvousModel, ABlockOfAMessageThatWasGivenUpIsNotCounted) {
  EXPECT_TRUE(holds(gives_up(), 5));
  for (const char* end : {"sender", "receiver"})
    EXPECT_TRUE(fails_with(gives_up({.thread = end}), "a block is counted"))
        << "without the fence of the " << end;
}

}  // namespace
}  // namespace hccl_like::model

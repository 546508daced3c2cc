// Messages that need no operation: the caller's thread moves them itself.
#include "collectives/engine.h"
#include "core/patience.h"

namespace hccl_like {

template <class OneEnd>
bool Engine::pass_end(Link& link, OneEnd& message, bool patient) {
  std::unique_lock driver(driver_, std::try_to_lock);
  if (!driver || inbox_full_.load(std::memory_order_relaxed)) return false;
  link.post(message);
  Patience patience(config_);
  do {
    link.progress(message);
  } while (!message.done && patient && !link.has_news() && patience.wait());
  const bool passed = link.withdraw(message);
  // A full wire may have taken a part of it only.
  if (passed && link.owes()) owing_ = true;
  // News that concern a message which did not pass wait for the operation that it becomes.
  if (passed && link.has_news()) look_at_links(/*idle=*/false);
  leave(std::move(driver), /*waited_for=*/false);
  return passed;
}

bool Engine::pass(Link& link, Send& message, bool patient) {
  return pass_end(link, message, patient);
}

bool Engine::pass(Link& link, Recv& message, bool patient) {
  return pass_end(link, message, patient);
}

}  // namespace hccl_like

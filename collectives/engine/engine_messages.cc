// Messages that need no operation: the caller's thread moves them itself.
#include <algorithm>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "core/machine/backoff.h"

namespace hccl_like {

Engine::CallerDriven::CallerDriven(Engine& engine, const Communicator& communicator, size_t most)
    : engine_(engine), driver_(engine.driver_, std::try_to_lock) {
  if (!driver_) return;
  // Once a group has failed nobody would take back what is lent in its name.
  if (engine.inbox_full_.load(std::memory_order_relaxed) || communicator.has_failed()) {
    driver_.unlock();
    return;
  }
  engine.caller_messages_.clear();
  engine.caller_messages_.reserve(most);
}

Engine::CallerDriven::~CallerDriven() {
  if (!driver_) return;
  // What threw between two posts leaves nothing behind that would tell this of its end.
  if (pending_ > 0) take_back();
  engine_.hand_over(std::move(driver_), /*waited_for=*/false);
}

void Engine::CallerDriven::post(CallerMessage& message) {
  ++pending_;
  message.common().pending = &pending_;
  message.post();
  message.progress();
  if (message.done()) settle(message);
}

// Where the time of a message is short what is left to do after it is done while another is under
// way.
void Engine::CallerDriven::settle(CallerMessage& message) {
  // A full wire may have taken a part of it only.
  if (message.link->owes()) engine_.owing_ = true;
  news_ = news_ || message.link->has_news();
}

void Engine::CallerDriven::take_back() {
  for (CallerMessage& one : messages())
    if (!one.done() && one.withdraw()) settle(one);
  pending_ = 0;
}

void Engine::CallerDriven::finish(bool may_wait) {
  constexpr uint32_t kPollsBetweenSteps = 16;
  Backoff backoff(engine_.config_);
  bool news = false;
  for (uint32_t polls = 1; pending_ > 0 && may_wait && !news; ++polls) {
    bool moved = false;
    for (CallerMessage& one : messages()) {
      if (one.done()) continue;
      moved |= one.progress();
      // What else goes over the link has its turn now and then.
      if (polls % kPollsBetweenSteps == 0) one.link->progress();
      if (one.done())
        settle(one);
      else
        news = news || one.link->has_news();
    }
    if (moved)
      backoff.reset();
    else if (pending_ > 0 && !backoff.wait())
      break;
  }
  take_back();
  // Those that concern a message which did not pass wait for the operation that it becomes.
  if (news_) engine_.look_at_links(/*idle=*/false);
}

}  // namespace hccl_like

// Caller-driven messages, without an operation.
#include <algorithm>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "core/machine/backoff.h"
#include "transport/link/traffic.h"

namespace hccl_like {

Engine::CallerDriven::CallerDriven(Engine& engine, const Communicator& communicator, size_t most)
    : engine_(engine), driver_(engine.driver_, std::try_to_lock) {
  if (!driver_) return;
  // After a failure of the group, no thread would withdraw exposed memory.
  if (engine.inbox_full_.load(std::memory_order_relaxed) || communicator.has_failed()) {
    driver_.unlock();
    return;
  }
  engine.caller_messages_.clear();
  engine.caller_messages_.reserve(most);
}

Engine::CallerDriven::~CallerDriven() {
  if (!driver_) return;
  // After an exception between two posts: the messages refer to pending_, which ends here.
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

// Completion work overlaps with messages in flight.
void Engine::CallerDriven::settle(CallerMessage& message) {
  // A full wire may have taken only a part.
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
  Backoff backoff = engine_.backoff();
  bool news = false;
  for (uint32_t polls = 1; pending_ > 0 && may_wait && !news; ++polls) {
    bool moved = false;
    for (CallerMessage& one : messages()) {
      if (one.done()) continue;
      moved |= one.progress();
      // Other traffic of the link needs progress, too.
      if (polls % kPollsBetweenSteps == 0) one.link->progress();
      if (one.done()) {
        one.link->traffic().waited(backoff.waited());
        settle(one);
      } else {
        news = news || one.link->has_news();
      }
    }
    if (moved)
      backoff.reset();
    else if (pending_ > 0 && !backoff.wait())
      break;
  }
  for (CallerMessage& one : messages())
    if (!one.done()) one.link->traffic().waited(backoff.waited());
  take_back();
  // Events of an unfinished message wait for the operation that continues it.
  if (news_) engine_.look_at_links(/*idle=*/false);
}

}  // namespace hccl_like

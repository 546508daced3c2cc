// Peers connect when they first need it, which need not be when this process is in a call: a thread
// waits for them.
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "core/base/error.h"
#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

// Of a wait without a connection: local peers are looked at so often. The system tells of the end
// of those that are guarded.
constexpr std::chrono::milliseconds kLookEvery{10};

}  // namespace

void Engine::start_accept_thread() {
  std::lock_guard lock(background_mutex_);
  if (accept_bell_.valid() || stopping_ || by_hand_ > 0) return;
  accept_bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!accept_bell_.valid()) throw_system("cannot create an eventfd");
  if (const auto& commons = mesh_.commons()) {
    accept_threads_life_ = &commons->life();
    accept_threads_life_->lend([this] { accept_thread(); });
    return;
  }
  try {
    accept_thread_ = own_thread("waits for peers which connect", [this] { accept_thread(); });
  } catch (...) {
    accept_bell_.reset();
    throw;
  }
}

void Engine::end_accept_thread() {
  if (!accept_bell_.valid()) return;
  Poller::ring(accept_bell_.get());
  if (accept_threads_life_ != nullptr)
    accept_threads_life_->take_back();
  else
    accept_thread_.join();
}

// A peer that left in order is known by what it shows; whether it died, the system is asked.
void Engine::look_at_local_peers() {
  if (active_.empty() || !mesh_.has_absent()) return;
  const auto now = Deadline::Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  for (const auto& execution : active_) {
    const Communicator& communicator = execution->operation().communicator();
    const auto look = [&](int peer) {
      Link* const link = communicator.identity_.links[static_cast<size_t>(peer)];
      if (link != nullptr) link->look_for_end();
    };
    if (const auto awaited = execution->waiting_for(); !awaited.empty())
      std::ranges::for_each(awaited, look);
    else
      for (int peer = 0; peer < communicator.size(); ++peer) look(peer);
  }
}

}  // namespace hccl_like

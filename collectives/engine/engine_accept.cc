// Accept thread: peers connect on first use, which may be outside this process's calls.
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

// Liveness check interval of unconnected local peers; the system reports the end of guarded ones.
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

// The peer's shared memory shows an orderly exit; the system knows whether the peer died.
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

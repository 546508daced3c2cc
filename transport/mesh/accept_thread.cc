#include "transport/mesh/accept_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "core/base/own_thread.h"
#include "transport/same_host/life.h"
#include "transport/wire/poller.h"

namespace hccl_like {
namespace {

// How long it leaves a new connection to a busy thread.
constexpr std::chrono::milliseconds kNap{2};

}  // namespace

void AcceptThread::start(int listener, Life* life, std::function<bool()> serve) {
  std::lock_guard lock(mutex_);
  if (bell_.valid() || stopping_) return;
  bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_.valid()) throw_system("cannot create an eventfd");
  listener_ = listener;
  serve_ = std::move(serve);
  if (life != nullptr) {
    life_ = life;
    life_->lend([this] { loop(); });
    return;
  }
  try {
    thread_ = own_thread("waits for peers which connect", [this] { loop(); });
  } catch (...) {
    bell_.reset();
    throw;
  }
}

void AcceptThread::ring() {
  std::lock_guard lock(mutex_);
  if (bell_.valid()) Poller::ring(bell_.get());
}

void AcceptThread::end() {
  stopping_ = true;
  ring();
  if (life_ != nullptr) std::exchange(life_, nullptr)->take_back();
  if (thread_.joinable()) thread_.join();
}

void AcceptThread::loop() {
  std::array<pollfd, 2> listeners{{{bell_.get(), POLLIN, 0}, {listener_, POLLIN, 0}}};
  while (!stopping_) {
    if (::poll(listeners.data(), listeners.size(), -1) <= 0) continue;
    if (stopping_) return;
    uint64_t rings;
    (void)!::read(bell_.get(), &rings, sizeof rings);
    if (!serve_()) std::this_thread::sleep_for(kNap);
  }
}

}  // namespace hccl_like

#include "process_group/session.h"

#include <pthread.h>

#include <atomic>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "process_group/backend.h"

namespace hccl_like {
namespace {

// How many forks lead from the first process with this library to the present one. Counted rather than taken from
// getpid(), which is a system call, because every call on a group asks.
std::atomic<uint64_t> forks{0};

uint64_t generation() {
  static const int counting =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (counting != 0) throw_system("cannot notice forks");
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

Session::Session(Devices& devices, FlightRecorder& recorder, const ModulePaths& transports)
    : devices_(devices), recorder_(recorder), generation_(generation()) {
  Config config = Config::from_environment();
  configure_log(config.debug, config.debug_file);
  recorder_.configure(FlightRecorder::settings(config));
  lookout_ = std::make_unique<Lookout>(recorder_, config.dump_signal);
  runtime_ = std::make_unique<Runtime>(std::move(config), transports);
  completer_ = std::make_unique<Completer>(runtime_->engine());
}

Session::~Session() {
  if (!forked()) {
    devices_.exported().clear();
    return;
  }
  // The threads stayed with the parent, and saying goodbye to its peers would end their groups.
  (void)lookout_.release();
  (void)completer_.release();
  (void)runtime_.release();
}

bool Session::forked() const noexcept {
  return forks.load(std::memory_order_relaxed) != generation_;
}

std::shared_ptr<Session> Session::join(std::weak_ptr<Session>& current, Devices& devices,
                                       FlightRecorder& recorder, const ModulePaths& transports) {
  auto session = current.lock();
  if (session && !session->forked()) return session;
  session = std::make_shared<Session>(devices, recorder, transports);
  current = session;
  return session;
}

void Session::add(Backend& backend) {
  std::lock_guard lock(mutex_);
  backends_.insert(&backend);
}

void Session::remove(Backend& backend) {
  std::lock_guard lock(mutex_);
  backends_.erase(&backend);
}

void Session::each(c10::function_ref<void(Backend&)> see) {
  std::lock_guard lock(mutex_);
  for (Backend* backend : backends_) see(*backend);
}

void Session::close_all(const std::string& reason) {
  std::set<Backend*> open;
  {
    std::lock_guard lock(mutex_);
    open.swap(backends_);
  }
  if (!reason.empty())
    for (Backend* backend : open) backend->abort(reason);
  for (Backend* backend : open) backend->close_at_exit();
}

}  // namespace hccl_like

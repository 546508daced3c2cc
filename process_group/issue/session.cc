#include "process_group/issue/session.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/machine/machine.h"

namespace hccl_like {
namespace {

// Number of forks from the first process with this library to this one. A counter, because every
// call on a group checks it and getpid() is a system call.
std::atomic<uint64_t> forks{0};

uint64_t generation() {
  static const int counting =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (counting != 0) throw_system("cannot notice forks");
  return forks.load(std::memory_order_relaxed);
}

std::shared_ptr<CounterFile> make_counters() {
  std::array<std::string_view, kCollectives> names;
  for (size_t kind = 0; kind < names.size(); ++kind)
    names[kind] = name(static_cast<Collective>(kind));
  return CounterFile::make(names);
}

// A job goes on without metrics.
std::unique_ptr<MetricsServer> serve_metrics(const MetricsTarget& target,
                                             const std::shared_ptr<const CounterFile>& counters) {
  if (target.none()) return nullptr;
  try {
    auto server = std::make_unique<MetricsServer>(target, local_rank().value_or(0), counters);
    log_info([&] { return "metrics are at " + server->where(); });
    return server;
  } catch (const Exception& error) {
    log_warn("HCCL_LIKE_METRICS: " + error.error().message);
    return nullptr;
  }
}

}  // namespace

Session::Session(Devices& devices, FlightRecorder& recorder, const ModulePaths& transports)
    : devices_(devices),
      recorder_(recorder),
      generation_(generation()),
      counters_(make_counters()) {
  Config config = Config::from_environment();
  configure_log(config.debug, config.debug_file);
  recorder_.configure(FlightRecorder::settings(config));
  const std::string signal = config.dump_signal;
  metrics_ = serve_metrics(config.metrics, counters_);
  runtime_ = std::make_unique<Runtime>(std::move(config), transports);
  runtime_->mesh().show(counters_);
  completer_ = std::make_unique<Completer>(runtime_->engine());
  other_hosts_ = std::make_unique<OtherHosts>(runtime_->mesh());
  watchdog_ = std::make_unique<Watchdog>(recorder_, signal, [this] { other_hosts_->look(); });
}

Session::~Session() {
  counters_->close();
  if (!forked()) {
    warn_if_unused();
    devices_.exported().clear();
    return;
  }
  // The threads belong to the parent; a goodbye message to its peers would end its groups.
  (void)watchdog_.release();
  (void)other_hosts_.release();
  (void)metrics_.release();
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

void Session::add(Backend& backend, const Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  std::lock_guard lock(mutex_);
  backends_.insert(&backend);
  if (size >= largest_) {
    counters_->set_job(communicator.id(), rank, size);
    communicator.count_messages(*counters_);
    other_hosts_->set(communicator.members());
  }
  if (size <= largest_) return;
  largest_ = size;
  rank_in_largest_ = rank;
}

// Frameworks that do not know the device train a separate copy on each rank, without a word.
void Session::warn_if_unused() const {
  if (used_ || largest_ == 1 || rank_in_largest_ != 0) return;
  log_warn("no collective was called in this program's process group of " +
           std::to_string(largest_) +
           " ranks: did the framework fall back to a single process, or to another backend? Then "
           "each rank has trained a model of its own");
}

void Session::remove(Backend& backend) {
  std::lock_guard lock(mutex_);
  backends_.erase(&backend);
}

void Session::each(c10::function_ref<void(Backend&)> see) {
  std::lock_guard lock(mutex_);
  for (Backend* backend : backends_) see(*backend);
}

std::set<Backend*> Session::take_all() {
  std::lock_guard lock(mutex_);
  return std::exchange(backends_, {});
}

}  // namespace hccl_like

#include "collectives/engine/engine.h"

#include <algorithm>
#include <functional>

#include "collectives/engine/communicator.h"
#include "core/base/log.h"
#include "core/machine/backoff.h"

namespace hccl_like {
namespace {

// Idle polls between checks of rare events: deadlines, new connections, liveness.
constexpr uint32_t kIdleTicks = 64;
constexpr auto kLookAround = std::chrono::milliseconds(50);
// Busy steps between such checks.
constexpr uint32_t kBusyTicks = 1024;
// Pause after the system has refused a connection.
constexpr std::chrono::milliseconds kNap{2};

}  // namespace

Engine::Engine(const Config& config, Poller& poller, Mesh& mesh)
    : config_(config),
      poller_(poller),
      mesh_(mesh),
      thread_pool_(config.threads),
      mismatches_({.groups = groups_,
                   .active = active_,
                   .fail = [this](Communicator& communicator,
                                  const Error& error) { fail(communicator, error, true); },
                   .keep_awake = [this] { inbox_full_ = true; },
                   .call_sites = config.call_sites}),
      background_([this] { return unfinished(); }, [this] { drive_in_background(); }) {}

Engine::~Engine() {
  stopping_ = true;
  poller_.ring();
  background_.stop();
  accept_thread_.end();
  // Peers hear of an abort that no driver has taken.
  for (const Submission& one : inbox_)
    if (one.aborted) fail(*one.aborted, *one.error, /*tell_peers=*/true);
}

// Any thread.

void Engine::launch(std::span<const std::shared_ptr<Operation>> operations, bool waited_for) {
  running_ += operations.size();
  large_ += static_cast<size_t>(std::ranges::count_if(operations, is_large));
  {
    std::lock_guard lock(inbox_mutex_);
    for (const auto& operation : operations) inbox_.push_back({operation, nullptr, std::nullopt});
    inbox_full_ = true;
  }
  // The first steps are cheapest here, since the data is in this core's cache.
  std::unique_lock driver(driver_, std::try_to_lock);
  if (!driver) {
    if (sleeping_) poller_.ring();
    return;
  }
  // The background thread starts large operations, in parallel with the caller.
  if (waited_for || std::ranges::none_of(operations, is_large))
    step();
  else
    take_submissions();
  leave(std::move(driver), waited_for);
}

void Engine::run(std::function<void()> work) {
  const auto task = std::make_shared<Task>();
  task->work = std::move(work);
  {
    std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({nullptr, nullptr, std::nullopt, task});
    inbox_full_ = true;
  }
  poller_.ring();
  wait([&] { return task->done.load(); }, Deadline::never());
}

// All at once: between separate waits, the rest would move to the background thread.
bool Engine::wait(std::span<const std::shared_ptr<Operation>> operations, Deadline deadline) {
  const auto all_done = [&] {
    while (!operations.empty() && operations.back()->done())
      operations = operations.first(operations.size() - 1);
    return operations.empty();
  };
  return wait(all_done, deadline);
}

void Engine::nudge() {
  {
    std::lock_guard lock(turn_mutex_);
    turn_.notify_all();
  }
  poller_.ring();
}

bool Engine::wait(const std::function<bool()>& done, Deadline deadline, Wait how) {
  if (done()) return true;
  wanted_.fetch_add(1);
  while (!done() && !deadline.expired()) {
    uint64_t epoch;
    {
      std::lock_guard lock(turn_mutex_);
      epoch = turn_epoch_;
    }
    std::unique_lock driver(driver_, std::try_to_lock);
    if (driver) {
      drive(done, deadline, how);
      wanted_.fetch_sub(1);
      leave(std::move(driver), false);
      return done();
    }
    // Another thread drives. The background thread steps aside for a waiting caller; another waiter
    // also finishes these operations.
    if (sleeping_ && background_drives_) poller_.ring();
    std::unique_lock lock(turn_mutex_);
    turn_.wait_until(
        lock, earliest(deadline, Deadline::after(std::chrono::milliseconds(100))).time_point(),
        [&] { return done() || turn_epoch_ != epoch; });
  }
  // The driver that left may have relied on this thread to continue.
  if (wanted_.fetch_sub(1) == 1)
    if (std::unique_lock driver(driver_, std::try_to_lock); driver) leave(std::move(driver), false);
  return done();
}

void Engine::with_mesh(const std::function<void(Mesh&, const std::function<void()>&)>& work) {
  wanted_.fetch_add(1);
  std::unique_lock driver(driver_, std::try_to_lock);
  while (!driver) {
    poller_.ring();
    std::unique_lock lock(turn_mutex_);
    turn_.wait_for(lock, std::chrono::milliseconds(1));
    lock.unlock();
    driver.try_lock();
  }
  try {
    work(mesh_, [&] { step(); });
  } catch (...) {
    wanted_.fetch_sub(1);
    leave(std::move(driver), false);
    throw;
  }
  wanted_.fetch_sub(1);
  leave(std::move(driver), false);
}

// Releases the engine: to a waiting thread, else to the background thread if work is left. Wakes
// the accept thread if connections are pending, which may have to be rejected.
void Engine::leave(std::unique_lock<std::mutex> driver, bool waited_for) {
  // Sent data must reach peers while the program does other work. A caller that will wait drives
  // it; setting owing_ for that caller would wake the background thread after the call.
  if (!waited_for && !owing_ && mesh_.owes()) owing_ = true;
  hand_over(std::move(driver), waited_for);
}

// The same if owing_ is up to date.
void Engine::hand_over(std::unique_lock<std::mutex> driver, bool waited_for) {
  if (pass_on(std::move(driver))) return;
  if (!waited_for && unfinished()) background_.wake(/*large=*/large_ > 0);
}

// True if a thread waits for the engine. That thread takes over all remaining work, even if it no
// longer needs to drive.
bool Engine::pass_on(std::unique_lock<std::mutex> driver) {
  const bool restless = mesh_.is_restless();
  driver.unlock();
  if (wanted_ > 0) {
    std::lock_guard lock(turn_mutex_);
    ++turn_epoch_;
    turn_.notify_all();
    return true;
  }
  if (restless) accept_thread_.ring();
  return false;
}

// For the engine's own threads, which no exception may leave: the system may refuse a descriptor
// for a connection, and the peer then connects again.
template <class Stop>
void Engine::drive_alone(Stop stop) {
  try {
    poller_.poll();
    mesh_.poll();
    drive(stop, Deadline::never(), Wait::kInBackground);
  } catch (const std::exception& exception) {
    log_warn(std::string("while looking after connections: ") + exception.what());
    std::this_thread::sleep_for(kNap);
  }
}

void Engine::drive_in_background() {
  const auto stop = [this] { return stopping_.load() || !unfinished(); };
  while (!stop()) {
    std::unique_lock driver(driver_, std::try_to_lock);
    if (!driver) return;  // the driver wakes this thread when it leaves
    background_drives_ = true;
    drive_alone(stop);
    background_drives_ = false;
    if (pass_on(std::move(driver))) return;
  }
}

void Engine::start_accept_thread() {
  if (stopping_ || by_hand_ > 0) return;
  const auto& commons = mesh_.commons();
  accept_thread_.start(mesh_.listener_fd(), commons ? &commons->life() : nullptr,
                       [this] { return accept_connections(); });
}

// On the accept thread. False if another thread drives, which accepts connections too.
bool Engine::accept_connections() {
  std::unique_lock driver(driver_, std::try_to_lock);
  if (!driver) return false;
  background_drives_ = true;
  drive_alone([this] { return stopping_.load() || !mesh_.is_restless(); });
  background_drives_ = false;
  leave(std::move(driver), /*waited_for=*/false);
  return true;
}

bool Engine::Turns::take() {
  std::unique_lock driver(engine_.driver_, std::try_to_lock);
  if (!driver) return false;
  const bool moved = engine_.step();
  if (!moved) engine_.sleep(Deadline::never(), /*background=*/false);
  engine_.leave(std::move(driver), /*waited_for=*/false);
  return moved;
}

// Driver only.

template <class Stop>
void Engine::drive(Stop stop, Deadline deadline, Wait how) {
  const bool background = how == Wait::kInBackground;
  uint32_t idle = 0;
  Backoff backoff(config_, /*own_core=*/how == Wait::kForPeers && !crowded_);
  waits_.end();
  while (!stop()) {
    if (step()) {
      idle = 0;
      backoff.reset();
      waits_.end();
      continue;
    }
    if (background && wanted_ > 0) return;
    ++idle;
    if (idle % kIdleTicks == 0) {
      poller_.poll();  // finds closed connections without another event
      look_around();
      mismatches_.look();
      if (deadline.expired()) return;
    }
    if (crowded_ && poller_.sockets() > 0) backoff.skip_spins();
    if (backoff.wait()) continue;
    sleep(deadline, background);
    if (deadline.expired()) return;  // now, since each further step may last
  }
}

bool Engine::step() {
  bool moved = inbox_full_.load(std::memory_order_acquire) && take_submissions();
  if (mesh_.is_restless() || ++steps_ % kBusyTicks == 0) {
    poller_.poll();
    if (gave_up_ && mesh_.is_restless()) owing_ = true;
    mesh_.poll();
  } else if (!poller_.few_sockets() && poller_.poll()) {
    moved = true;
  }
  for (const auto& link : mesh_.links())
    if (link->progress()) moved = true;
  moved |= advance_executions();
  look_at_links(/*idle=*/!moved);
  if (owing_ && !moved) owing_ = !mesh_.hand_on();
  return moved;
}

bool Engine::advance_executions() {
  bool moved = false;
  for (size_t i = 0; i < active_.size();) {
    Execution& execution = *active_[i];
    if (execution.advance()) moved = true;
    if (execution.mismatch()) {
      mismatches_.on_board(execution);
      i = 0;  // the list has changed
    } else if (execution.failure()) {
      on_failure(execution);
      i = 0;
    } else if (execution.finished())
      finish(i, std::nullopt);
    else
      ++i;
  }
  return moved;
}

bool Engine::take_submissions() {
  {
    std::lock_guard lock(inbox_mutex_);
    taken_.swap(inbox_);
    inbox_full_ = false;
  }
  for (Submission& submission : taken_) {
    if (submission.operation)
      start(std::move(submission.operation));
    else if (submission.task)
      run(*submission.task);
    else
      fail(*submission.aborted, *submission.error, /*tell_peers=*/true), --running_;
  }
  const bool any = !taken_.empty();
  taken_.clear();
  // Their messages go out in this step, not in the next one.
  if (any) advance_executions();
  return any;
}

void Engine::run(Task& task) {
  task.work();
  std::lock_guard lock(turn_mutex_);
  task.done = true;
  turn_.notify_all();
}

void Engine::start(std::shared_ptr<Operation> operation) {
  Communicator& communicator = operation->communicator();
  std::unique_ptr<Execution> execution;
  if (spare_.empty()) {
    execution = std::make_unique<Execution>();
  } else {
    execution = std::move(spare_.back());
    spare_.pop_back();
  }
  execution->begin(std::move(operation), scratch_, self_);
  active_.push_back(std::move(execution));
  if (auto failure = communicator.failure()) return finish(active_.size() - 1, std::move(failure));
  for (int peer = 0; peer < communicator.size(); ++peer) {
    const Link* link = communicator.links()[static_cast<size_t>(peer)];
    if (link != nullptr && link->failure() != nullptr && !link->peer_said_goodbye())
      return lost(communicator, peer, *link->failure());
  }
}

void Engine::finish(size_t index, std::optional<Error> error) {
  std::unique_ptr<Execution> execution = std::move(active_[index]);
  active_[index] = std::move(active_.back());
  active_.pop_back();
  const std::shared_ptr<Operation> operation = execution->end();
  spare_.push_back(std::move(execution));
  operation->finished_ = Deadline::Clock::now();
  operation->error_ = std::move(error);
  operation->done_.store(true, std::memory_order_release);
  if (is_large(operation)) --large_;
  --running_;
  if (wanted_ > 0) {
    std::lock_guard lock(turn_mutex_);
    turn_.notify_all();
  }
}

void Engine::sleep(Deadline deadline, bool background) {
  mismatches_.look();
  count_waits();
  sleeping_ = true;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // After the fence, submitters and threads that want the engine see sleeping_ and ring.
  mesh_.set_asleep(true);
  bool quiet = !inbox_full_ && !(background && wanted_ > 0);
  size_t prepared = 0;
  const auto& links = mesh_.links();
  while (quiet && prepared < links.size()) quiet = links[prepared++]->prepare_sleep();
  // A peer that changed its board before the links were prepared did not ring.
  quiet =
      quiet && std::ranges::none_of(active_, [](const auto& one) { return one->could_advance(); });
  if (quiet) {
    for (const auto& execution : active_) deadline = earliest(deadline, execution->deadline());
    // The links check for dead peers before each sleep.
    if (!active_.empty()) deadline = earliest(deadline, Deadline::after(kLookAround));
    poller_.sleep(earliest(deadline, mesh_.next_timer()));
  }
  mesh_.set_asleep(false);
  for (size_t i = 0; i < prepared; ++i) links[i]->end_sleep();
  sleeping_ = false;
  look_around();
}

void Engine::look_at_memory() {
  if (Exports* const own = exports()) own->look();
  peer_memory_.close_freed();
}

}  // namespace hccl_like

#include "core/machine/thread_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/own_thread.h"
#include "core/machine/pause.h"

namespace hccl_like {
namespace {

// A longer wait for a helper's last part shows that its core was not idle.
constexpr auto kLongWait = std::chrono::microseconds(500);
constexpr auto kFallingAsleep = std::chrono::microseconds(50);
constexpr auto kRest = std::chrono::milliseconds(100);
constexpr int kSpins = 2000;

}  // namespace

ThreadPool::ThreadPool(size_t most, IdleCores idle)
    : most_(most == 0 ? kMostHands : std::min(most, kMostHands)), idle_(std::move(idle)) {}

ThreadPool::~ThreadPool() {
  Team* const team = team_;
  if (team == nullptr || team->process != ::getpid()) return;
  team->ending = true;
  for (size_t i = 0; i < team->started; ++i) {
    team->wake(i);
    team->helpers[i].thread.join();
  }
  delete team;
}

size_t ThreadPool::helpers() const {
  const Team* const team = team_;
  return team != nullptr && team->process == ::getpid() ? team->started.load() : 0;
}

// An unneeded helper costs more than a missing one. In doubt, cores count as busy: every runnable
// thread of the host runs on our cores, and every rank that shares them is about to run.
size_t ThreadPool::threads(size_t bytes, size_t ranks) {
  const size_t wanted = std::min(most_, bytes / kBytesPerHand);
  if (wanted < 2 || ranks == 0) return 1;
  const auto now = Clock::now();
  if (now < rests_until_.load(std::memory_order_relaxed)) return 1;
  const size_t usable = idle_.usable();
  // Ranks do not share cores if the host has usable() cores for each of them.
  const size_t sharers = usable * ranks <= idle_.host() ? 1 : ranks;
  if (usable / sharers < 2) return 1;
  const size_t spare =
      std::min((usable - sharers) / sharers, idle_.idle(just_at_work(now)) / sharers);
  return std::min(wanted, spare + 1);
}

// Helpers still awake after a pass are not foreign load.
size_t ThreadPool::just_at_work(Clock::time_point now) const {
  const bool just = now - ended_.load(std::memory_order_relaxed) < kFallingAsleep;
  return just ? had_.load(std::memory_order_relaxed) : 0;
}

// After fork(), the parent's team stays untouched: its threads do not exist here.
ThreadPool::Team& ThreadPool::team() {
  const pid_t process = ::getpid();
  Team* now = team_.load(std::memory_order_acquire);
  if (now != nullptr && now->process == process) return *now;
  auto fresh = std::make_unique<Team>(process);
  if (team_.compare_exchange_strong(now, fresh.get(), std::memory_order_acq_rel))
    return *fresh.release();
  return *now;
}

void ThreadPool::run(size_t threads, uint32_t parts, Call call, const void* work) {
  Team* const team = threads > 1 && parts > 1 ? &this->team() : nullptr;
  const std::unique_lock lock =
      team ? std::unique_lock(team->mutex, std::try_to_lock) : std::unique_lock<std::mutex>();
  if (!lock) {
    for (uint32_t part = 0; part < parts; ++part) call(work, part);
    return;
  }
  team->call = call;
  team->work = work;
  team->parts.offer(parts);
  const size_t helpers = std::min({threads - 1, size_t{parts} - 1, team->helpers.size()});
  for (size_t i = 0; i < helpers && team->wake(i); ++i) {
  }
  team->work_off();
  wait_for_helpers(*team);
  had_.store(helpers, std::memory_order_relaxed);
  ended_.store(Clock::now(), std::memory_order_relaxed);
}

void ThreadPool::wait_for_helpers(Team& team) {
  for (int i = 0; i < kSpins && !team.parts.all_done(); ++i) cpu_pause();
  if (team.parts.all_done()) return;
  const auto begin = Clock::now();
  while (!team.parts.all_done()) std::this_thread::yield();
  const auto end = Clock::now();
  if (end - begin > kLongWait) rests_until_.store(end + kRest, std::memory_order_relaxed);
}

void ThreadPool::Team::work_off() {
  while (const auto part = parts.take()) {
    call(work, *part);
    parts.done();
  }
}

void ThreadPool::Team::help(Helper& self) {
  uint32_t heard = 0;
  while (true) {
    self.rings.wait(heard, std::memory_order_acquire);
    heard = self.rings.load(std::memory_order_acquire);
    if (ending) return;
    work_off();
  }
}

// Creates the thread on first use. Returns false if the system cannot create one.
bool ThreadPool::Team::wake(size_t helper) {
  Helper& one = helpers[helper];
  if (helper == started) {
    try {
      one.thread = own_thread("helps with large passes over memory", [this, &one] { help(one); });
    } catch (const Exception&) {
      return false;
    }
    ::pthread_setname_np(one.thread.native_handle(), "hccl-like pool");
    ++started;
  }
  one.rings.fetch_add(1, std::memory_order_release);
  one.rings.notify_one();
  return true;
}

}  // namespace hccl_like

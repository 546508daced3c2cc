#include "process_group/diagnosis/watchdog.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/log.h"
#include "core/base/own_thread.h"
#include "core/settings/config_values.h"
#include "process_group/diagnosis/flight_recorder_dump.h"

namespace hccl_like {
namespace {

constexpr std::chrono::milliseconds kEvery{500};
constexpr std::chrono::milliseconds kEndTimeout{200};

std::atomic<uint64_t> signals{0};  // signals received
struct sigaction before;           // the program's handler

// Async-signal-safe.
void on_signal(int number, siginfo_t* info, void* context) {
  signals.fetch_add(1, std::memory_order_relaxed);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    if (before.sa_sigaction != nullptr) before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  }
}

int signal_number(const std::string& name) {
  const std::map<std::string, int> known{{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}};
  if (const auto found = known.find(name); found != known.end()) return found->second;
  const auto number = static_cast<int>(parse_number(name, static_cast<uint64_t>(SIGRTMAX)));
  if (number == 0 || number == SIGKILL || number == SIGSTOP)
    throw_misuse("HCCL_LIKE_DUMP_SIGNAL: no program can listen to signal " + name +
                 "; write USR2, say");
  return number;
}

void listen_to(int number) {
  static std::mutex mutex;
  static int listening = 0;
  std::lock_guard lock(mutex);
  if (listening == number) return;
  struct sigaction action {};
  action.sa_sigaction = &on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  if (::sigaction(number, &action, &before) != 0)
    throw_system("cannot listen to signal " + std::to_string(number));
  listening = number;
}

}  // namespace

struct Watchdog::State {
  State(FlightRecorder& the_recorder, std::function<void()> the_look)
      : recorder(the_recorder), own_look(std::move(the_look)) {}

  FlightRecorder& recorder;
  const std::function<void()> own_look;  // called with the lock, so that it ends with the Watchdog
  std::mutex mutex;
  std::condition_variable changed;
  bool started = false, stopping = false, ended = false;
  struct Watched {
    std::weak_ptr<FailureReport> group;
    uint64_t calls = 0;  // calls at the last look
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };
  std::vector<Watched> groups;
  std::map<c10d::Store*, int64_t> seen;  // questions answered by store; -1: unresponsive

  // Used by the watchdog thread only.
  uint64_t signals_seen = signals;

  std::vector<std::shared_ptr<FailureReport>> quiet();
  void answer_signal();
  void look_into(c10d::Store& store, const std::vector<std::shared_ptr<FailureReport>>& all);
};

Watchdog::Watchdog(FlightRecorder& recorder, const std::string& signal, std::function<void()> look)
    : state_(std::make_shared<State>(recorder, std::move(look))) {
  if (signal.empty()) return;
  listen_to(signal_number(signal));
  start();
}

Watchdog::~Watchdog() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, kEndTimeout,
                                              [&] { return state_->ended || !state_->started; });
  lock.unlock();
  if (!thread_.joinable()) return;
  if (ended)
    thread_.join();
  else
    thread_.detach();
}

void Watchdog::start() {
  std::lock_guard lock(state_->mutex);
  if (state_->started) return;
  thread_ = own_thread("looks out for questions of other ranks", [state = state_] {
    look(*state);
    std::lock_guard ended(state->mutex);
    state->ended = true;
    state->changed.notify_all();
  });
  ::pthread_setname_np(thread_.native_handle(), "hccl-like look");
  state_->started = true;
}

void Watchdog::add(const std::shared_ptr<FailureReport>& group) {
  const auto store = group->asked_through();
  if (!store) return;
  const auto known = [&] {
    std::lock_guard lock(state_->mutex);
    return state_->seen.contains(store.get());
  };
  // Read now, while the store's server is alive.
  int64_t asked = 0;
  try {
    if (!known()) asked = FailureReport::questions(*store);
  } catch (const std::exception&) {
    asked = -1;
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->seen.emplace(store.get(), asked);
    state_->groups.push_back({.group = group});
  }
  try {
    start();
  } catch (const Exception& problem) {
    // Without the thread, peers get no report from this rank.
    log_warn(problem.error().message);
  }
}

// Groups without a call for a quarter of their timeout. Drops destroyed groups. Hold the lock.
std::vector<std::shared_ptr<FailureReport>> Watchdog::State::quiet() {
  const auto now = std::chrono::steady_clock::now();
  std::vector<std::shared_ptr<FailureReport>> quiet;
  std::vector<c10d::Store*> stores;
  std::erase_if(groups, [&](Watched& one) {
    auto group = one.group.lock();
    if (!group) return true;
    stores.push_back(group->asked_through().get());
    const uint64_t calls = group->calls();
    if (std::exchange(one.calls, calls) != calls) one.since = now;
    if (now - one.since >= group->timeout() / 4) quiet.push_back(std::move(group));
    return false;
  });
  std::erase_if(
      seen, [&](const auto& one) { return std::ranges::find(stores, one.first) == stores.end(); });
  return quiet;
}

void Watchdog::look(State& state) {
  while (true) {
    std::vector<std::shared_ptr<FailureReport>> quiet;
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait_for(lock, kEvery, [&] { return state.stopping; });
      if (state.stopping) return;
      quiet = state.quiet();
      state.own_look();
    }
    try {
      state.answer_signal();
      std::vector<c10::intrusive_ptr<c10d::Store>> stores;
      for (const auto& group : quiet) {
        auto store = group->asked_through();
        if (std::ranges::find(stores, store) == stores.end()) stores.push_back(std::move(store));
      }
      for (const auto& store : stores) state.look_into(*store, quiet);
    } catch (const std::exception& problem) {
      log_warn(std::string("while looking out for questions of other ranks: ") + problem.what());
    }
  }
}

void Watchdog::State::look_into(c10d::Store& store,
                                const std::vector<std::shared_ptr<FailureReport>>& all) {
  int64_t answered = 0;
  {
    std::lock_guard lock(mutex);
    const auto known = seen.find(&store);
    if (known == seen.end() || known->second < 0) return;
    answered = known->second;
  }
  try {
    const int64_t asked = FailureReport::questions(store);
    while (answered < asked) {
      const auto about = FailureReport::question(store, answered + 1);
      if (!about) break;  // the question is incomplete
      ++answered;
      for (const auto& group : all)
        if (group->group().id == *about) group->answer();
    }
  } catch (const std::exception&) {  // the store's server has exited
    answered = -1;
  }
  std::lock_guard lock(mutex);
  if (const auto known = seen.find(&store); known != seen.end()) known->second = answered;
}

void Watchdog::State::answer_signal() {
  const uint64_t now = signals;
  if (std::exchange(signals_seen, now) == now) return;
  const auto known = recorder.groups();
  const char* const rank = std::getenv("RANK");
  const int global_rank = !known.empty()    ? static_cast<int>(known.front()->global_rank())
                          : rank != nullptr ? std::atoi(rank)
                                            : 0;
  try {
    log_warn("a signal asked for the flight recorder; it is in " +
             write_dump(recorder, global_rank));
  } catch (const std::exception& problem) {
    log_warn(std::string("a signal asked for the flight recorder, which could not be written: ") +
             problem.what());
  }
}

}  // namespace hccl_like

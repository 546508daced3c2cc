#include "tests/model/explorer.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

namespace hccl_like::model {
namespace {

constexpr size_t kStackBytes = 256 << 10;
// Far more than a scenario takes: a thread that turns in circles is wrong.
constexpr size_t kMostSteps = 20000;
constexpr size_t kMostThreads = 4;

}  // namespace

struct Explorer::Fiber {
  std::string name;
  std::function<void()> body;
  std::function<void()> afterwards;  // if it may die
  size_t number = 0;
  ucontext_t context{};  // where it begins
  jmp_buf here{};        // where it stopped
  jmp_buf scheduler{};
  bool begun = false;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  bool over = false;
  std::optional<size_t> asleep;
  Hash history;
};

Explorer::Explorer(Flaw flaw) : flaw_(flaw) {}
Explorer::~Explorer() = default;

Verdict Explorer::explore(const std::function<void(Explorer&)>& scenario, Flaw flaw) {
  Explorer explorer(flaw);
  active_ = &explorer;
  do {
    explorer.execute(scenario);
  } while (explorer.verdict_.failure.empty() && explorer.next_execution());
  active_ = nullptr;
  explorer.verdict_.states = explorer.states_.size();
  return std::move(explorer.verdict_);
}

void Explorer::thread(std::string name, std::function<void()> body) {
  if (fibers_.size() == kMostThreads) std::abort();
  if (spare_.empty()) spare_.push_back(std::make_unique<Fiber>());
  fibers_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  Fiber& fiber = *fibers_.back();
  fiber.name = std::move(name);
  fiber.body = std::move(body);
  fiber.afterwards = nullptr;
  fiber.number = memory_.add_thread();
  fiber.over = false;
  fiber.history = {};
  prepare(fiber);
}

void Explorer::mortal(std::string name, std::function<void()> body,
                      std::function<void()> afterwards) {
  thread(std::move(name), std::move(body));
  fibers_.back()->afterwards = std::move(afterwards);
}

// To begin at the beginning of its body.
void Explorer::prepare(Fiber& fiber) {
  fiber.begun = false;
  fiber.asleep.reset();
  ::getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  ::makecontext(&fiber.context, &Explorer::enter, 0);
}

void Explorer::enter() {
  Fiber& fiber = *active_->running_;
  fiber.body();
  fiber.over = true;
  active_->memory_.end_thread(fiber.number);
  active_->pause();
}

// Nothing is left of what it was about to do.
void Explorer::die(Fiber& fiber) {
  steps_.push_back({&fiber, "dies", 0, std::source_location::current()});
  fiber.body = std::exchange(fiber.afterwards, nullptr);
  fiber.history = {};
  fiber.history.add(~uint64_t{0});
  prepare(fiber);
}

// swapcontext() would do for both, with two system calls each time.
void Explorer::resume(Fiber& fiber) {
  running_ = &fiber;
  if (::_setjmp(fiber.scheduler) == 0) {
    if (fiber.begun) ::_longjmp(fiber.here, 1);
    fiber.begun = true;
    ::setcontext(&fiber.context);
  }
  running_ = nullptr;
}

void Explorer::pause() {
  if (::_setjmp(running_->here) == 0) ::_longjmp(running_->scheduler, 1);
}

void Explorer::execute(const std::function<void(Explorer&)>& scenario) {
  ++verdict_.executions;
  memory_ = {};
  plain_.clear();
  readers_.clear();
  steps_.clear();
  depth_ = 0;
  startles_ = 0;
  scenario(*this);
  for (auto& fiber : fibers_) resume(*fiber);  // up to its first operation
  run();
  // While the memory is there that the scenario's objects lie in.
  finally_ = nullptr;
  for (auto& fiber : fibers_) {
    fiber->body = nullptr;
    spare_.push_back(std::move(fiber));
  }
  fibers_.clear();
}

void Explorer::run() {
  while (verdict_.failure.empty() && !begin_anew_) {
    const std::vector<Move> candidates = able();
    if (candidates.empty()) {
      if (!std::ranges::all_of(fibers_, [](const auto& fiber) { return fiber->over; }))
        fail("nobody can go on: a wake-up was lost");
      else if (finally_)
        finally_();
      went_on_ = 1;
      return;
    }
    if (depth_ == path_.size() && seen_before()) return;
    if (steps_.size() > kMostSteps) return fail("it never ends");
    const Move move = candidates[choose(candidates.size())];
    if (move.dies) die(*move.fiber);
    resume(*move.fiber);
  }
}

std::vector<Explorer::Move> Explorer::able() {
  std::vector<Move> candidates;
  for (auto& fiber : fibers_)
    if (!fiber->over && (!fiber->asleep || memory_.rung(*fiber->asleep)))
      candidates.push_back({fiber.get()});
  // Nobody may count on being startled, or on a death.
  if (candidates.empty()) return candidates;
  for (auto& fiber : fibers_) {
    if (startles_ > 0 && fiber->asleep && !memory_.rung(*fiber->asleep))
      candidates.push_back({fiber.get()});
    if (!fiber->over && fiber->afterwards) candidates.push_back({fiber.get(), /*dies=*/true});
  }
  return candidates;
}

size_t Explorer::choose(size_t of) {
  if (of == 1) return 0;
  if (depth_ == path_.size()) path_.push_back({.taken = 0, .of = static_cast<uint32_t>(of)});
  return path_[depth_++].taken;
}

bool Explorer::next_execution() {
  if (std::exchange(begin_anew_, false)) {
    path_.clear();
    states_.clear();
    visits_.clear();
    return true;
  }
  for (double schedules = went_on_;;) {
    for (; !visits_.empty() && visits_.back().depth == path_.size(); visits_.pop_back())
      states_[visits_.back().state] = schedules;
    if (path_.empty()) {
      verdict_.schedules = schedules;
      return false;
    }
    Choice& last = path_.back();
    last.schedules += schedules;
    if (++last.taken < last.of) return true;
    schedules = last.schedules;
    path_.pop_back();
  }
}

bool Explorer::seen_before() {
  Hash hash;
  hash.add(startles_);
  for (const auto& fiber : fibers_) hash.add(fiber->history.value());
  memory_.add_to(hash);
  const auto [state, is_new] = states_.try_emplace(hash.value());
  if (is_new) visits_.push_back({depth_, hash.value()});
  went_on_ = state->second;
  return !is_new;
}

// An operation that no other thread can notice at once need not be a place where others come in
// between.
void Explorer::before(const char* what, const std::source_location& where, bool noticed) {
  if (noticed) pause();
  steps_.push_back({running_, what, 0, where});
}

void Explorer::remember(uint64_t value) {
  running_->history.add(value);
  steps_.back().value = value;
}

std::memory_order Explorer::weakened(std::memory_order order,
                                     const std::source_location& where) const {
  const bool hit =
      !flaw_.relaxed_inside.empty() &&
      std::string_view(where.function_name()).find(flaw_.relaxed_inside) != std::string_view::npos;
  return hit ? std::memory_order_relaxed : order;
}

// Locations that all threads only read need no scheduling point.
bool Explorer::is_shared(Location location, bool writes) {
  if (uses_.size() <= location) uses_.resize(location + 1);
  Use& use = uses_[location];
  const bool before = use.shared();
  if (use.user == kNobody) use.user = running_->number;
  if (use.user != running_->number) use.user = kSeveral;
  use.written |= writes;
  if (use.shared() && !before) begin_anew_ = true;
  return use.shared();
}

Location Explorer::add(uint64_t initial) {
  // The order of their making names locations: it must be the same in all executions.
  if (running_ != nullptr)
    fail("make, or touch, everything shared in the scenario, before threads run");
  return memory_.add(initial);
}

uint64_t Explorer::load(Location location, std::memory_order order,
                        const std::source_location& where) {
  if (running_ == nullptr) return memory_.last(location);
  before("load", where, is_shared(location, /*writes=*/false));
  order = weakened(order, where);
  const size_t which = choose(memory_.loads(running_->number, location, order));
  const uint64_t value = memory_.load(running_->number, location, order, which);
  remember(value);
  return value;
}

void Explorer::store(Location location, uint64_t value, std::memory_order order,
                     const std::source_location& where) {
  if (running_ == nullptr) return memory_.reset(location, value);
  before("store", where, is_shared(location, /*writes=*/true));
  order = weakened(order, where);
  const size_t which = choose(memory_.stores(running_->number, location, order));
  memory_.store(running_->number, location, value, order, which);
  remember(value);
}

uint64_t Explorer::exchange(Location location, const std::function<uint64_t(uint64_t)>& change,
                            std::memory_order order, const std::source_location& where) {
  if (running_ == nullptr) {
    const uint64_t old = memory_.last(location);
    memory_.reset(location, change(old));
    return old;
  }
  before("exchange", where, is_shared(location, /*writes=*/true));
  order = weakened(order, where);
  const size_t which = choose(memory_.stores(running_->number, location, order));
  const uint64_t old = memory_.exchange(running_->number, location, change, order, which);
  remember(old);
  return old;
}

void Explorer::fence(std::memory_order order, const std::source_location& where) {
  if (running_ == nullptr) return;
  before("fence", where, /*noticed=*/order == std::memory_order_seq_cst);
  if (flaw_.thread != running_->name) memory_.fence(running_->number, order);
  remember(0);
}

Location Explorer::add_plain() {
  plain_.push_back(add(0));
  readers_.push_back(memory_.add(0));
  for (size_t i = 1; i < kMostThreads; ++i) memory_.add(0);
  return static_cast<Location>(plain_.size() - 1);
}

void Explorer::plain(Location location, bool write, const std::source_location& where) {
  if (running_ == nullptr) return;
  // Whether it is ordered with another thread's shows whichever comes first.
  before(write ? "write" : "read", where, /*noticed=*/false);
  const bool ordered =
      write ? memory_.plain_write(running_->number, plain_[location], readers_[location])
            : memory_.plain_read(running_->number, plain_[location], readers_[location]);
  remember(0);
  if (!ordered) fail("a data race");
}

void Explorer::ring(size_t bell, const std::source_location& where) {
  before("ring", where);
  memory_.ring(running_->number, bell);
  remember(0);
}

void Explorer::sleep(size_t bell, const std::source_location& where) {
  running_->asleep = bell;
  before("sleep", where);
  running_->asleep.reset();
  if (!memory_.rung(bell)) --startles_;
  memory_.silence(running_->number, bell);
  remember(0);
}

void Explorer::landmark(uint64_t digest) {
  if (running_ == nullptr) return;
  running_->history = {};
  running_->history.add(digest);
}

void Explorer::fail(const std::string& why) {
  verdict_.failure = why + "\n" + story();
  if (running_ == nullptr) return;
  while (true) pause();
}

std::string Explorer::story() const {
  std::string text;
  for (const Step& step : steps_) {
    const std::string_view file(step.where.file_name());
    text += "  " + step.fiber->name + ": " + step.what + " " + std::to_string(step.value) + "  " +
            std::string(file.substr(file.rfind('/') + 1)) + ":" +
            std::to_string(step.where.line()) + "  " + step.where.function_name() + "\n";
  }
  for (const auto& fiber : fibers_)
    text += "  " + fiber->name +
            (fiber->over     ? " is over"
             : fiber->asleep ? " sleeps"
                             : " is on its way") +
            "\n";
  return text;
}

}  // namespace hccl_like::model

#include "process_group/issue/pending.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/engine/engine.h"
#include "core/base/interrupts.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/diagnosis/failure_report.h"
#include "process_group/issue/session.h"

namespace hccl_like {
namespace {

using Clock = std::chrono::steady_clock;

// Time limit for a failure report, which exchanges the ranks' positions.
constexpr std::chrono::seconds kFailureReport{1};

}  // namespace

Pending::Pending(Kind kind, const std::shared_ptr<Session>& session,
                 std::shared_ptr<Communicator> communicator)
    : kind_(kind), session_(session), communicator_(std::move(communicator)) {}

Pending::Pending(Clock::time_point started, Clock::duration duration, int source)
    : kind_(Kind::kHost),
      begun_(true),
      finished_(true),
      claimed_(true),
      source_(source),
      started_(started),
      duration_(duration) {}

void Pending::add(std::shared_ptr<Operation> operation) {
  if (!first_) first_ = operation->sequence();
  operations_.push_back(std::move(operation));
}

void Pending::add_slice(std::shared_ptr<Operation> operation) {
  std::lock_guard lock(finish_mutex_);
  if (!first_) first_ = operation->sequence();
  slices_.push_back(std::move(operation));
}

void Pending::copy_back(at::Tensor to, at::Tensor temporary) {
  copies_back_.emplace_back(std::move(to), std::move(temporary));
}

template <class See>
void Pending::each_operation(See&& see) const {
  for (const auto* operations : {&operations_, &slices_})
    for (const auto& operation : *operations) see(*operation);
}

void Pending::hold(Buffers& buffers) {
  for (auto& temporary : buffers.take_temporaries()) temporaries_.push_back(std::move(temporary));
  for (auto& written : buffers.take_written()) written_.push_back(written);
  for (auto& copy : buffers.take_copies_back()) copies_back_.push_back(std::move(copy));
  for (auto& alias : buffers.take_aliases()) aliases_.push_back(std::move(alias));
}

void Pending::set_failure_report(FlightRecorder& recorder, FlightIds entries,
                                 std::shared_ptr<FailureReport> failure_report) {
  recorder_ = &recorder;
  flight_ = std::move(entries);
  failure_report_ = std::move(failure_report);
}

void Pending::set_counters(FlightRecorder& recorder, std::shared_ptr<GroupCounters> counters,
                           CountedCalls calls) {
  recorder_ = &recorder;
  counters_ = std::move(counters);
  counted_ = std::move(calls);
  if (finished()) count();  // a captured call
}

// Once.
void Pending::count() {
  if (!counters_) return;
  const auto counting = recorder_->counting();
  std::exchange(counters_, nullptr)->finished(counted_, duration_, error_.has_value());
}

void Pending::launch(bool waited_for) {
  begun_.store(true, std::memory_order_relaxed);
  if (!operations_.empty()) communicator_->launch(operations_, waited_for);
}

void Pending::start(void* self) { static_cast<Pending*>(self)->launch(/*waited_for=*/false); }

void Pending::join(void* self) {
  auto& pending = *static_cast<Pending*>(self);
  Engine& engine = pending.communicator_->engine();
  const bool in_slices = !pending.slices_.empty();
  if (in_slices) pending.wait_for_slices();
  engine.wait(pending.operations_, Deadline::never());
  bool failed = in_slices && pending.failing();
  pending.each_operation([&](const Operation& one) { failed = failed || one.error() != nullptr; });
  if (failed) pending.spoil();
  // Holds the lock to the end: a thread that sees `joined_` may destroy this object.
  std::lock_guard lock(pending.joined_mutex_);
  pending.joined_ = true;
  pending.joined_changed_.notify_all();
}

void Pending::expect_slices(size_t calls) {
  std::lock_guard lock(joined_mutex_);
  calls_in_slices_ = calls;
  if (kind_ == Kind::kStaged) joined_ = calls == 0;
}

// The copies are queued on other streams, so this stream only waits.
void Pending::wait_for_slices() {
  std::unique_lock lock(joined_mutex_);
  joined_changed_.wait(lock, [this] { return calls_in_slices_ == 0; });
}

void Pending::begin() {
  std::lock_guard lock(joined_mutex_);
  begun_.store(true, std::memory_order_relaxed);
  if (begun_at_ == Clock::time_point()) begun_at_ = Clock::now();
}

void Pending::end_slices() {
  std::lock_guard lock(joined_mutex_);
  if (--calls_in_slices_ > 0) return;
  slices_over_ = Clock::now();
  if (kind_ == Kind::kStaged) joined_ = true;
  joined_changed_.notify_all();
}

void Pending::spoil() const {
  for (const auto& [region, boolean] : written_)
    std::memset(region.data, byte_that_spoils(boolean), region.bytes);
}

void Pending::run(void* self) {
  static_cast<Pending*>(self)->launch(/*waited_for=*/true);
  join(self);
}

bool Pending::wait(Deadline deadline) {
  if (finished()) return true;
  const auto session = session_.lock();  // keeps the engine open during the wait
  return session ? wait_inside_session(deadline) : finished();
}

bool Pending::wait_interruptibly(Deadline deadline) {
  return hccl_like::wait_interruptibly(deadline, [this](Deadline part) { return wait(part); });
}

bool Pending::wait_inside_session(Deadline deadline) {
  if (finished()) return true;
  if (kind_ != Kind::kHost) {
    std::unique_lock lock(joined_mutex_);
    const auto joined = [&] { return joined_; };
    if (deadline.is_never())
      joined_changed_.wait(lock, joined);
    else if (!joined_changed_.wait_until(lock, deadline.time_point(), joined))
      return false;
    if (kind_ == Kind::kStream) return true;
  }
  const auto all = operations();
  return all.empty() || all.front()->communicator().engine().wait(all, deadline);
}

// Queries the event without a lock and through its own reference: another thread may finish the
// call and release the event meanwhile.
bool Pending::over() {
  if (finished()) return true;
  if (kind_ != Kind::kHost) {
    std::lock_guard lock(joined_mutex_);
    if (!joined_) return false;
  }
  std::shared_ptr<c10::Event> end;
  {
    std::lock_guard lock(finish_mutex_);
    if (claimed_) return finished();
    bool done = true;
    if (kind_ != Kind::kStream)
      each_operation([&](const Operation& one) { done = done && one.done(); });
    if (!done) return false;
    end = end_;
  }
  return !end || end->query();
}

void Pending::fail(Error error) {
  std::lock_guard lock(finish_mutex_);
  if (!error_) error_ = std::move(error);
}

bool Pending::failing() const {
  std::lock_guard lock(finish_mutex_);
  return error_.has_value();
}

bool Pending::claim() {
  std::lock_guard lock(finish_mutex_);
  return !std::exchange(claimed_, true);
}

void Pending::finish() {
  if (claim()) return settle();
  std::unique_lock lock(finish_mutex_);
  settled_.wait(lock, [&] { return finished(); });
  settled_.wait_for(lock, kFailureReport, [&] { return !in_failure_report_; });
}

bool Pending::finish_if_over() {
  if (!over()) return false;
  if (claim()) settle();
  std::lock_guard lock(finish_mutex_);
  return finished() && !in_failure_report_;
}

bool Pending::succeeded() {
  bool over = finish_if_over();
  if (!over && kind_ == Kind::kStream) {
    std::lock_guard lock(finish_mutex_);
    over = claimed_;  // another thread is in finish(), which cannot change the outcome
  }
  return over && !failure();
}

// The resources to free; members are destroyed in reverse order.
struct Pending::Remains {
  std::shared_ptr<Communicator> communicator;
  std::vector<std::shared_ptr<Operation>> operations, slices;
  Copies copies_back;
  std::vector<at::Tensor> temporaries, held;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> let_go;
  std::shared_ptr<c10::Event> end;
  std::vector<Alias> aliases;
};

// By the thread that claimed the call. Copies and frees without a lock: both may need the GIL,
// which a thread that queries this object may hold.
void Pending::settle() {
  make_copies_back();
  if (look_) std::exchange(look_, nullptr)();
  std::shared_ptr<FailureReport> failure_report;
  std::optional<Error> error;
  {
    std::optional<Remains> remains;
    std::lock_guard lock(finish_mutex_);
    keep_outcome();
    remains = let_go();
    failure_report.swap(failure_report_);
    error = error_;
  }
  {
    std::lock_guard lock(finish_mutex_);
    in_failure_report_ = failure_report && error;
    finished_.store(true, std::memory_order_release);
    settled_.notify_all();
  }
  if (!failure_report || !error) return;
  // Inspects all running calls, so the caller must not hold one call's lock.
  error = failure_report->after(std::move(*error));
  std::lock_guard lock(finish_mutex_);
  error_ = std::move(error);
  in_failure_report_ = false;
  settled_.notify_all();
}

void Pending::make_copies_back() {
  if (kind_ == Kind::kStream) return;
  bool failed = failing();
  each_operation([&](const Operation& one) { failed = failed || one.error() != nullptr; });
  if (failed) return;
  try {
    copy_all(copies_back_, /*non_blocking=*/false);
  } catch (const std::exception& error) {
    fail({ErrorCode::kDevice, "the result could not be copied back: " + words_of(error)});
  }
}

// With the lock held.
void Pending::keep_outcome() {
  auto first = Clock::time_point::max();
  auto last = Clock::time_point::min();
  each_operation([&](const Operation& one) {
    if (const Error* error = one.error(); error && !error_) error_ = *error;
    source_ = one.source();
    first = std::min(first, one.started());
    last = std::max(last, one.finished());
  });
  if (!slices_.empty()) {
    std::lock_guard lock(joined_mutex_);
    if (begun_at_ != Clock::time_point()) first = std::min(first, begun_at_);
    last = std::max(last, slices_over_);
  }
  started_ = first_ ? first : Clock::now();
  duration_ = first_ ? last - first : Clock::duration::zero();
  if (recorder_) recorder_->retire(flight_, *this, error_.has_value());
  count();
}

// With the lock held.
Pending::Remains Pending::let_go() {
  written_.clear();
  return {.communicator = std::move(communicator_),
          .operations = std::move(operations_),
          .slices = std::move(slices_),
          .copies_back = std::move(copies_back_),
          .temporaries = std::move(temporaries_),
          .held = std::move(held_),
          .let_go = std::move(let_go_),
          .end = std::move(end_),
          .aliases = std::move(aliases_)};
}

void Pending::set_end(std::shared_ptr<c10::Event> end) {
  std::lock_guard lock(finish_mutex_);
  end_ = std::move(end);
}

void Pending::end() {
  std::unique_lock lock(finish_mutex_);
  const auto end = end_;
  lock.unlock();
  if (end) end->synchronize();
  finish();
}

void Pending::hold_weakly(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) let_go_.push_back(tensor.storage().getWeakStorageImpl());
}

void Pending::let_go_of_tensors() {
  std::vector<at::Tensor> tensors;  // freed outside the lock
  std::lock_guard lock(finish_mutex_);
  tensors.swap(held_);
  for (const at::Tensor& tensor : tensors) let_go_.push_back(tensor.storage().getWeakStorageImpl());
  // The copies are queued already.
  for (auto& [tensor, temporary] : copies_back_) {
    temporaries_.push_back(std::move(temporary));
    let_go_.push_back(tensor.storage().getWeakStorageImpl());
    tensors.push_back(std::move(tensor));
  }
  copies_back_.clear();
}

uint64_t Pending::temporary_bytes() const {
  std::lock_guard lock(finish_mutex_);
  uint64_t bytes = 0;
  for (const at::Tensor& temporary : temporaries_) bytes += temporary.nbytes();
  for (const auto& [tensor, temporary] : copies_back_) bytes += temporary.nbytes();
  return bytes;
}

void Pending::abort(const std::string& reason) {
  std::unique_lock lock(finish_mutex_);
  const auto communicator = communicator_;
  lock.unlock();
  if (communicator) communicator->abort(reason);
}

std::optional<Error> Pending::failure() const {
  std::lock_guard lock(finish_mutex_);
  if (finished_ || error_) return error_;
  std::optional<Error> error;
  bool done = first_.has_value();
  each_operation([&](const Operation& one) {
    if (!error && one.error() != nullptr) error = *one.error();
    done = done && one.done();
  });
  return error || done || !communicator_ ? error : communicator_->failure();
}

std::optional<Error> Pending::told_failure() const {
  auto error = failure();
  if (!error) return error;
  std::unique_lock lock(finish_mutex_);
  const auto failure_report = failure_report_;
  lock.unlock();
  return failure_report ? failure_report->named(std::move(*error)) : error;
}

std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> Pending::storages() const {
  std::lock_guard lock(finish_mutex_);
  auto storages = let_go_;
  for (const at::Tensor& tensor : held_) storages.push_back(tensor.storage().getWeakStorageImpl());
  return storages;
}

std::vector<std::shared_ptr<Operation>> Pending::operations() const {
  std::lock_guard lock(finish_mutex_);
  auto operations = operations_;
  operations.insert(operations.end(), slices_.begin(), slices_.end());
  return operations;
}

}  // namespace hccl_like

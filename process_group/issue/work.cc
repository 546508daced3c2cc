#include "process_group/issue/work.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "collectives/engine/engine.h"
#include "core/base/log.h"
#include "process_group/diagnosis/errors.h"
#include "process_group/diagnosis/profiling.h"
#include "process_group/diagnosis/untold.h"
#include "process_group/issue/session.h"

namespace hccl_like {
namespace {

using c10::ivalue::Future;

c10::intrusive_ptr<Future> make_future(c10::TypePtr type, std::vector<c10::Device> devices = {}) {
  return c10::make_intrusive<Future>(std::move(type), std::move(devices));
}

c10d::WorkResult result_of(const std::optional<Error>& error) {
  if (!error) return c10d::WorkResult::SUCCESS;
  return error->code == ErrorCode::kTimeout ? c10d::WorkResult::TIMEOUT
                                            : c10d::WorkResult::COMM_ERROR;
}

}  // namespace

Work::Work(const Description& description, const std::shared_ptr<Session>& session, int rank,
           uint64_t group)
    // With a title the base class queries the profiler, which costs more than all the rest.
    : c10d::Work(rank, description.type, profiled() ? description.title : nullptr,
                 profiled() ? std::optional(description.inputs.vec()) : std::nullopt),
      title_(description.title),
      session_(session),
      group_(group),
      outputs_(description.outputs.vec()) {}

void Work::set_pending(std::shared_ptr<Pending> pending, uint64_t sequence) {
  pending_ = std::move(pending);
  sequence_ = sequence;
}

void Work::set_stream(c10::Stream stream, std::shared_ptr<c10::Event> end) {
  stream_ = stream;
  end_ = std::move(end);
}

void Work::add_outputs(at::TensorList outputs) {
  outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
}

void Work::set_watched(std::shared_ptr<const GroupView> group, const CallNumber& number) {
  watched_by_ = std::move(group);
  number_ = number;
}

void Work::record_end_in_time(Completer& completer) {
  auto self = c10::intrusive_ptr<Work>::reclaim_copy(this);
  try {
    completer.when_over(pending_, [self] { self->conclude(); });
  } catch (const Exception& problem) {  // the call itself runs
    log_warn("the profiler learns of the end of a call only from whoever waits for it: " +
             problem.error().message);
  }
}

void Work::end_record() {
  if (!recordFunctionEndCallback_) return;
  std::call_once(recorded_, [this] { recordFunctionEndCallback_(); });
}

void Work::require_issued() const {
  if (!pending_) {
    throw_torch_error({ErrorCode::kMisuse,
                       "this call waits for its coalescing block to end; leave the block "
                       "(end_coalescing) and use the "
                       "work that it returns"},
                      where());
  }
}

// c10d holds the GIL here and in isSuccess(), exception() and getFuture().
bool Work::isCompleted() {
  require_issued();
  if (!pending_->finish_if_over()) return false;
  conclude();
  return true;
}

// After the end of the call.
void Work::conclude() {
  pending_->finish();
  end_record();
  complete_future();
}

bool Work::isSuccess() const { return pending_ && pending_->succeeded(); }

std::exception_ptr Work::exception() const { return failure(/*told=*/true); }

std::exception_ptr Work::failure(bool told) const {
  const auto error = pending_ ? pending_->told_failure() : std::nullopt;
  if (!error) return nullptr;
  if (told) failure_told(group_, *error);
  try {
    throw_torch_error(*error, where());
  } catch (...) {
    return std::current_exception();
  }
}

void Work::throw_if_failed() const {
  if (const auto error = failure(/*told=*/true)) std::rethrow_exception(error);
}

int Work::sourceRank() const {
  require_issued();
  // const in the interface; the wait changes no visible state.
  const_cast<Work*>(this)->wait_on_host(kNoTimeout);
  return pending_->source();
}

std::vector<at::Tensor> Work::result() { return outputs_; }

void Work::synchronize() {
  require_issued();
  throw_if_failed();
  if (!in_stream()) return wait_on_host(kNoTimeout);
  const c10::impl::VirtualGuardImpl guard(stream_->device_type());
  const c10::Stream current = guard.getStream(stream_->device());
  if (end_) {
    end_->block(current);
  } else if (current != *stream_) {
    c10::Event end(stream_->device_type());
    end.record(*stream_);
    end.block(current);
  }
  pending_->let_go_of_tensors();
}

bool Work::wait(std::chrono::milliseconds timeout) {
  require_issued();
  if (watched_by_ && profiled()) {
    record_wait(*watched_by_, number_, [&] { wait_unseen(timeout); });
  } else {
    wait_unseen(timeout);
  }
  return true;
}

void Work::wait_unseen(std::chrono::milliseconds timeout) {
  if (waits_on_host() || timeout > kNoTimeout) wait_on_host(timeout);
  if (in_stream()) synchronize();
}

// Waits for the operations and the device's copies.
void Work::wait_on_host(std::chrono::milliseconds timeout) {
  const bool limited = timeout > kNoTimeout;
  if (!pending_->wait_interruptibly(limited ? Deadline::after(timeout) : Deadline::never())) {
    pending_->give_up_waiting();
    throw_torch_error(
        {.code = ErrorCode::kTimeout,
         .message = "the call is not over after the " + std::to_string(timeout.count()) +
                    " ms that wait() was given; it goes on",
         .number = kWaitTimeout},
        where());
  }
  pending_->end();
  conclude();
  throw_if_failed();
}

void Work::abort() {
  require_issued();
  pending_->abort("abort() was called on the work of one of its calls");
}

// Returns the session, its completer started, if the completer has to complete the Future.
std::shared_ptr<Session> Work::session_that_completes() const {
  auto session = session_.lock();
  if (pending_->finish_if_over() || !session) return nullptr;
  translated([this] { return where(); },
             [&] { naming_rank(rank_, [&] { session->completer().start(); }); });
  return session;
}

c10::intrusive_ptr<Future> Work::getFuture() {
  require_issued();
  const auto session = waits_on_host() ? session_that_completes() : nullptr;
  c10::intrusive_ptr<Future> future;
  {
    std::lock_guard lock(future_mutex_);
    if (future_) return future_;
    future_ =
        make_future(c10::ListType::create(c10::TensorType::get()),
                    device_ ? std::vector<c10::Device>{*device_} : std::vector<c10::Device>{});
    future = future_;
  }
  if (!waits_on_host()) {
    // Users of the value wait on their own stream for our queued work. All tensors count, because a
    // call without outputs on this rank (a send, a gather) still uses its inputs.
    const c10::StreamGuard guard(*stream_);
    auto storages = pending_->storages();
    future->markCompleted(c10::IValue(outputs_), std::move(storages));
    return future;
  }
  if (!session) {
    isCompleted();
    return future;
  }
  auto self = c10::intrusive_ptr<Work>::reclaim_copy(this);
  session->completer().complete_future(pending_, [self] { self->conclude(); });
  return future;
}

// On the host: completes the Future, if requested. Its callbacks run here.
void Work::complete_future() {
  if (!waits_on_host()) return;
  c10::intrusive_ptr<Future> future;
  {
    std::lock_guard lock(future_mutex_);
    if (!future_ || std::exchange(future_completed_, true)) return;
    future = future_;
  }
  if (const auto error = failure(/*told=*/false)) {
    future->setError(error);
  } else {
    future->markCompleted(c10::IValue(outputs_));
  }
}

c10::intrusive_ptr<Future> Work::getFutureResult() {
  require_issued();
  auto future = make_future(c10::IntType::get());
  const auto complete = [future, pending = pending_] {
    pending->finish();
    future->markCompleted(c10::IValue(static_cast<int64_t>(result_of(pending->failure()))));
  };
  if (const auto session = session_that_completes()) {
    session->completer().complete_future(pending_, complete);
  } else {
    complete();
  }
  return future;
}

float Work::getDuration() const {
  require_issued();
  if (!pending_->over()) {
    throw_torch_error(
        {ErrorCode::kMisuse, "the duration is known once the call is over; wait for it first"},
        where());
  }
  pending_->finish();
  return std::chrono::duration<float, std::milli>(pending_->duration()).count();
}

}  // namespace hccl_like

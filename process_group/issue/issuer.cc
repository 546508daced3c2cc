#include "process_group/issue/issuer.h"

#include <ATen/ATen.h>

#include "collectives/engine/engine.h"
#include "core/base/log.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/diagnosis/errors.h"
#include "process_group/diagnosis/nan_check.h"
#include "transport/message/kept_memory.h"

namespace hccl_like {
namespace {

// An error of this rank alone (kDevice, kSystem, or of torch, as when a copy fails or memory runs
// out) aborts the group, because other ranks expect this call. An operator that the device lacks is
// missing on all ranks. If the group fails while a call is made, the call is refused as after an
// earlier failure.
template <class Run>
void or_all_fail(const Communicators& communicators, Diagnosis& diagnosis, const Run& run) {
  try {
    naming_rank(communicators.host()->rank(), run);
  } catch (const Exception& error) {
    if (error.code() == ErrorCode::kDevice || error.code() == ErrorCode::kSystem)
      communicators.abort(error.error().message);
    else if (communicators.failure())
      throw Exception(diagnosis.refused(error.error()));
    throw;
  } catch (const c10::DistError&) {  // the error of a call that is over
    throw;
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const c10::Error& error) {
    communicators.abort("rank " + std::to_string(communicators.host()->rank()) +
                        " could not make a call: " + words_of(error));
    throw;
  }
}

// A refused plugin is refused on all ranks; kSystem may concern only this rank, so it aborts.
const DeviceAccess& access_or_all_fail(const Communicators& communicators, Devices& devices,
                                       c10::Device device) {
  try {
    return naming_rank(communicators.host()->rank(),
                       [&]() -> const DeviceAccess& { return devices.access(device); });
  } catch (const Exception& error) {
    if (error.code() == ErrorCode::kSystem) communicators.abort(error.error().message);
    throw;
  }
}

// Aborts the group on all ranks, which would otherwise wait for this one.
void give_up(const Communicators& communicators, const Error& error) {
  const auto& host = communicators.host();
  host->engine().abort(*host, error);
}

}  // namespace

Issuer::Issuer(std::shared_ptr<Session> session, std::shared_ptr<Communicator> communicator,
               Diagnosis& diagnosis)
    : diagnosis_(diagnosis),
      session_(std::move(session)),
      communicators_(std::make_shared<Communicators>(std::move(communicator))) {}

Issuer::~Issuer() = default;

std::shared_ptr<const Communicators> Issuer::communicators() const {
  std::lock_guard lock(mutex_);
  return communicators_;
}

std::shared_ptr<Session> Issuer::session() const {
  std::lock_guard lock(mutex_);
  return session_;
}

std::optional<c10::Device> Issuer::accelerator() const {
  std::lock_guard lock(mutex_);
  return accelerator_;
}

Issuer::Group Issuer::group() const {
  std::lock_guard lock(mutex_);
  return group_locked();
}

Issuer::Group Issuer::group_locked() const {
  if (suspended_)
    throw_misuse(
        "this process group is suspended; call hccl_like.resume() on all ranks before the next "
        "call");
  if (!session_) throw_misuse("this process group was destroyed; make a new one");
  if (session_->forked()) {
    throw_misuse(
        "this process was forked from one that uses the process group, whose connections cannot be "
        "shared; start it "
        "with the 'spawn' method, or call init_process_group in it");
  }
  return {session_, communicators_, !pending_.empty(), block_.has_value()};
}

c10::intrusive_ptr<Work> Issuer::issue(Issue issue) {
  const auto where = [&] { return place_of(issue.description.title); };
  return translated(where, [&] {
    const Group group = this->group();  // to the end, so that a suspension sees the call
    c10::intrusive_ptr<Work> work;
    diagnosis_.make(issue, [&] {
      if (!collects(issue, group, work)) work = start(issue, group, nullptr);
    });
    return work;
  });
}

// A refusal in a healthy group is not a failure of the group.
void Issuer::note_told(const Error& error) const {
  const auto communicators = this->communicators();
  if (communicators && communicators->failure()) failure_told(number_, error);
}

void Issuer::note_aborted() const {
  failure_told(number_, {ErrorCode::kAborted, "abort() was called"});
}

// Whether an open block has collected the call.
bool Issuer::collects(Issue& issue, const Group& group, c10::intrusive_ptr<Work>& work) {
  if (!group.in_block) return false;
  std::lock_guard lock(mutex_);
  if (!block_) return false;
  collect(issue, group, work);
  return true;
}

c10::intrusive_ptr<Work> Issuer::start(Issue& issue, const Group& group,
                                       c10::intrusive_ptr<Work> work) {
  try {
    if (group.communicators->checks()) compare_results(issue, group);
    work = start_unnoted(issue, group, std::move(work));
  } catch (const Exception& exception) {
    note_told(exception.error());
    throw;
  }
  // The program has not seen yet that the call is over.
  if (issue.check && (!work || work->pending()->finished())) issue.check->take();
  return work;
}

c10::intrusive_ptr<Work> Issuer::start_unnoted(Issue& issue, const Group& group,
                                               c10::intrusive_ptr<Work> work) {
  group.session->use();
  if (auto error = group.communicators->failure()) {
    diagnosis_.count_refused();
    throw Exception(diagnosis_.refused(std::move(*error)));
  }
  if (group.communicators->host()->engine().config().nan_check) {
    if (auto error = find_nan(issue, group.communicators->host()->rank())) {
      give_up(*group.communicators, *error);
      throw Exception(diagnosis_.refused(std::move(*error)));
    }
  }
  if (group.unfinished) reap();
  KeptMemory::of_process().sweep();
  issue.device = with_index(issue.device);
  const DeviceAccess& access =
      access_or_all_fail(*group.communicators, group.session->devices(), issue.device);
  if (!access.is_host()) {
    std::lock_guard lock(mutex_);
    accelerator_ = issue.device;
  }
  if (!access.is_host() && access.captures()) {
    issue.check.reset();  // it runs in replays
    work = work_for(issue, group, access, std::move(work));
    or_all_fail(*group.communicators, diagnosis_, [&] { in_graph(issue, group, access, *work); });
    return work;
  }
  const bool estimates = diagnosis_.estimate().active();
  if (estimates) issue.check.reset();
  if (!estimates && !goes_in_stream(issue, group, access)) {
    or_all_fail(*group.communicators, diagnosis_,
                [&] { work = on_host(issue, group, access, std::move(work)); });
    return work;
  }
  work = work_for(issue, group, access, std::move(work));
  if (estimates) {
    diagnosis_.estimate().add(issue, *group.communicators);
    work->set_pending(
        std::make_shared<Pending>(Pending::Kind::kHost, group.session, group.communicators->host()),
        0);
  } else {
    or_all_fail(*group.communicators, diagnosis_, [&] {
      if (!in_kernel(issue, group, access, *work)) in_stream(issue, group, access, *work);
    });
  }
  return work;
}

c10::intrusive_ptr<Work> Issuer::work_for(const Issue& issue, const Group& group,
                                          const DeviceAccess& access,
                                          c10::intrusive_ptr<Work> work) {
  if (!work)
    work = c10::make_intrusive<Work>(issue.description, group.session,
                                     group.communicators->host()->rank(), number_);
  if (issue.blocking) work->set_blocking();
  if (!access.is_host() && access.has_events()) work->set_device(issue.device);
  if (issue.profiled) work->set_watched(diagnosis_.group(), issue.number);
  return work;
}

void Issuer::prepare(const Issue& issue, const Group& group, Buffers& buffers, Pending& pending,
                     bool hold) const {
  c10::SmallVector<Call, 1> calls;
  for (const Request& request : issue.requests) {
    calls.push_back(buffers.call(request));
    calls.back().timeout = call_timeout(issue);
    if (hold) {
      pending.hold(request.input.tensors);
      pending.hold(request.output.tensors);
    } else {
      pending.hold_weakly(request.output.tensors);
    }
  }
  pending.hold(buffers);
  if (auto error = group.communicators->failure()) throw Exception(std::move(*error));
  for (Call& call : calls) {
    const auto& communicator = group.communicators->of(issue.device, call.collective);
    pending.add(communicator->prepare(std::move(call)));
  }
}

// Frees memory without the lock, because that may be slow.
void Issuer::reap() {
  std::list<std::shared_ptr<Pending>> over;
  {
    std::lock_guard lock(mutex_);
    for (auto pending = pending_.begin(); pending != pending_.end();) {
      const auto next = std::next(pending);
      if ((*pending)->over()) over.splice(over.end(), pending_, pending);
      pending = next;
    }
  }
  for (const auto& pending : over) {
    pending->finish();
    if (const auto error = pending->untold_failure()) note_untold(number_, *error);
  }
}

bool Issuer::drain(const std::list<std::shared_ptr<Pending>>& pending, Deadline deadline) {
  for (const auto& one : pending) {
    if (!one->wait(deadline)) return false;
  }
  return true;
}

bool Issuer::settle(Deadline deadline) {
  std::list<std::shared_ptr<Pending>> pending;
  {
    std::lock_guard lock(mutex_);
    pending = pending_;
  }
  if (!drain(pending, deadline)) return false;
  for (const auto& one : pending) one->end();
  reap();
  return true;
}

void Issuer::suspend() {
  std::lock_guard lock(mutex_);
  (void)group_locked();
  if (block_) throw_misuse("a coalescing block is open; end it first");
  if (!captured_.empty())
    throw_misuse(
        "a graph of the device has captured calls of the group, which cannot be suspended; destroy "
        "the group and its graphs, and make both again afterwards");
  if (auto error = communicators_->failure())
    throw Exception({error->code,
                     "the group has failed and cannot be suspended; destroy it or call "
                     "hccl_like.replace() first: " +
                         error->message});
  suspended_ = true;
}

void Issuer::undo_suspend() {
  std::lock_guard lock(mutex_);
  suspended_ = false;
}

void Issuer::release_staging() {
  std::map<c10::DeviceIndex, std::shared_ptr<Stagings>> stagings;  // joins threads
  std::lock_guard lock(mutex_);
  stagings.swap(stagings_);
}

void Issuer::reopen(std::shared_ptr<Session> session, std::shared_ptr<Communicator> communicator) {
  auto communicators = std::make_shared<const Communicators>(std::move(communicator));
  std::lock_guard lock(mutex_);
  session_ = std::move(session);
  communicators_ = std::move(communicators);
}

bool Issuer::suspended() const {
  std::lock_guard lock(mutex_);
  return suspended_;
}

Issuer::Held Issuer::held() const {
  std::lock_guard lock(mutex_);
  Held held;
  for (const auto& pending : pending_) {
    if (pending->over()) continue;
    ++held.calls;
    held.temporary_bytes += pending->temporary_bytes();
  }
  return held;
}

void Issuer::close(std::optional<std::chrono::milliseconds> timeout) {
  leave(timeout);
  undo_suspend();
}

void Issuer::leave(std::optional<std::chrono::milliseconds> timeout) {
  std::list<std::shared_ptr<Pending>> pending;
  std::shared_ptr<Session> session;
  std::shared_ptr<const Communicators> communicators;
  std::map<c10::DeviceIndex, Streams> streams;
  std::map<c10::DeviceIndex, std::shared_ptr<Stagings>> stagings;
  std::map<c10::DeviceIndex, std::shared_ptr<CapturedCalls>> captured;
  {
    std::lock_guard lock(mutex_);
    block_.reset();
    pending.swap(pending_);
    streams.swap(streams_);
    stagings.swap(stagings_);
    captured.swap(captured_);
    session.swap(session_);
    communicators.swap(communicators_);
  }
  if (!session) return;
  if (communicators->failure()) session->use();  // the program knows
  const auto leak = [&] {
    // Still in use by a stream that has not reached the host function, or by the parent of a fork.
    new std::tuple(std::move(pending), std::move(session), std::move(communicators),
                   std::move(stagings), std::move(captured));
  };
  if (session->forked()) return leak();
  if (!drain(pending, timeout ? Deadline::after(*timeout) : Deadline::never())) {
    communicators->abort("the group was closed while calls were running");
    if (!drain(pending, Deadline::after(*timeout))) {
      log_warn(
          "a device does not come to the end of its work; what it uses of a closed group stays "
          "allocated");
      return leak();
    }
  }
  for (const auto& one : pending) {
    one->end();
    if (const auto error = one->untold_failure()) note_untold(number_, *error);
  }
  for (const auto& [device, taken] : streams) {
    if (taken.collectives) session->devices().give_back(*taken.collectives);
    if (taken.messages) session->devices().give_back(*taken.messages);
    for (const auto& [one, stream] : taken.per_peer) session->devices().give_back(stream);
  }
  pending.clear();
  if (!std::exchange(captured, {}).empty())
    if (const auto error = communicators->failure()) note_untold(number_, *error);
  stagings.clear();
  if (const auto& checks = communicators->checks()) {
    const auto error = checks->last_difference(
        Deadline::after(timeout.value_or(communicators->host()->timeout())));
    if (error && !communicators->failure()) note_untold(number_, *error);
  }
  communicators.reset();  // before the session, which owns the engine
}

}  // namespace hccl_like

// Calls on devices whose streams run no host code, and on the host: the caller's thread makes them.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "collectives/engine/engine.h"
#include "core/base/log.h"
#include "process_group/calls/sharing.h"
#include "process_group/issue/issuer.h"

namespace hccl_like {
namespace {

using Clock = std::chrono::steady_clock;

// A synchronous call needs no Work of its own, but c10d may look its Work up by the tensors.
bool wants_work(const Issue& issue) {
  return issue.async || issue.handle || issue.profiled ||
         c10d::allow_inflight_collective_as_graph_input();
}

// The source rank of a receive that is over.
int source_of(const Issue& issue) {
  const Request& request = issue.requests.front();
  return request.collective == Collective::kRecv ? request.root : kAnySource;
}

}  // namespace

std::chrono::milliseconds Issuer::call_timeout(const Issue& issue) {
  // "Not set" is negative in c10d and 0 here.
  return std::max(issue.timeout, std::chrono::milliseconds(0));
}

const std::shared_ptr<Communicator>& Issuer::Group::communicator_of(const Issue& issue) const {
  if (issue.requests.empty()) return communicators->host();
  return communicators->of(issue.device, issue.requests.front().collective);
}

// A call with one plain tensor on each side needs no Buffers. If it is small and its peers have
// arrived, it ends here without a Pending; otherwise `begun` continues as an ordinary operation.
c10::intrusive_ptr<Work> Issuer::on_host(const Issue& issue, const Group& group,
                                         const DeviceAccess& access,
                                         c10::intrusive_ptr<Work> work) {
  const Cuts cuts = cuts_of(issue, group, access);
  if (cuts.empty())
    access.synchronize_current_stream();  // copies of slices wait for the stream themselves
  if (work || wants_work(issue)) work = work_for(issue, group, access, std::move(work));
  std::optional<Call> plain;
  std::shared_ptr<Operation> begun;
  if (access.is_host() && issue.requests.size() == 1) {
    const Communicator& host = *group.communicators->host();
    const Request& request = issue.requests.front();
    plain = plain_call(request, host.rank(), host.size());
    if (plain && worth_sharing(host, access, *plain))
      share(access, only_tensor(request.input), only_tensor(request.output), *plain);
  }
  if (plain) {
    plain->timeout = call_timeout(issue);
    if (diagnosis_.lets_run_at_once(issue)) {
      const auto start = Clock::now();
      auto tried = group.communicator_of(issue)->try_run(*plain, /*may_wait=*/!issue.async);
      if (tried.over) {
        const auto end = Clock::now();
        diagnosis_.over(issue, start, end);
        if (!work) return nullptr;
        work->set_pending(std::make_shared<Pending>(start, end - start, source_of(issue)),
                          tried.sequence);
        return work;
      }
      begun = std::move(tried.rest);
    }
  }
  const auto pending = !cuts.empty()
                           ? launch_staged(issue, group, access, cuts, work.get())
                           : launch_on_host(issue, group, access, plain ? &*plain : nullptr,
                                            std::move(begun), work.get());
  if (issue.async) {
    if (issue.profiled) work->record_end_in_time(group.session->completer());
  } else if (work) {
    work->wait();
  } else {
    pending->wait_interruptibly(Deadline::never());
    pending->end();
    if (auto error = pending->failure()) throw Exception(std::move(*error));
  }
  return work;
}

std::shared_ptr<Pending> Issuer::launch_on_host(const Issue& issue, const Group& group,
                                                const DeviceAccess& access, Call* plain,
                                                std::shared_ptr<Operation> begun, Work* work) {
  const auto& communicator = group.communicator_of(issue);
  auto pending = std::make_shared<Pending>(Pending::Kind::kHost, group.session, communicator);
  if (plain == nullptr) {
    Buffers buffers(access, *communicator, /*in_stream=*/false);
    prepare(issue, group, buffers, *pending, /*hold=*/true);
  } else {
    pending->add(begun ? std::move(begun) : communicator->prepare(std::move(*plain)));
    if (issue.async) {  // a synchronous caller holds them
      pending->hold(issue.requests.front().input.tensors);
      pending->hold(issue.requests.front().output.tensors);
    }
  }
  watch_result(issue, *pending);
  if (work != nullptr) work->set_pending(pending, pending->sequence());
  if (issue.async) {
    std::lock_guard lock(mutex_);
    pending_.push_back(pending);
  }
  diagnosis_.launching(issue, pending);
  pending->launch(/*waited_for=*/!issue.async);
  diagnosis_.launched(issue, group.session->completer(), pending);
  take_in_time(issue, group, pending);
  return pending;
}

// Fails the group if an earlier call had different results, which all ranks find out alike, and
// sees whether the result of this call is to be compared.
void Issuer::compare_results(Issue& issue, const Group& group) const {
  const auto& checks = group.communicators->checks();
  if (auto error = group.communicators->failure() ? std::nullopt : checks->difference()) {
    const auto& host = group.communicators->host();
    if (host->rank() == 0) log_warn("group " + host->name() + ": " + error->message);
    host->engine().abort(*host, *error);
  }
  issue.check = checks->next(issue);
}

// Before another thread may finish the call.
void Issuer::watch_result(const Issue& issue, Pending& pending) {
  if (issue.check) pending.when_final([check = issue.check] { check->take(); });
}

// Has the completer look at the result, if no thread of the program does before.
void Issuer::take_in_time(const Issue& issue, const Group& group,
                          const std::shared_ptr<Pending>& pending) {
  if (issue.check) group.session->completer().when_over(pending, [pending] { pending->finish(); });
}

}  // namespace hccl_like

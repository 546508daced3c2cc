#include "process_group/issue/diagnosis.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {
namespace {

uint8_t kind_of(const Issue& issue) {
  const auto& requests = issue.requests;
  const auto kind = requests.empty() ? Collective::kBarrier : requests.front().collective;
  return static_cast<uint8_t>(kind);
}

uint64_t tensor_bytes(const Side& side) {
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : side.tensors) bytes += tensor.nbytes();
  return bytes;
}

CountedCalls counted(const Issue& issue) {
  CountedCalls calls;
  for (const Request& request : issue.requests) {
    calls.push_back({.kind = static_cast<uint8_t>(request.collective),
                     .bytes = std::max(tensor_bytes(request.input), tensor_bytes(request.output))});
  }
  return calls;
}

}  // namespace

const std::shared_ptr<const GroupView>& Diagnosis::group() {
  if (is_named_.load(std::memory_order_acquire)) return group_;  // a lock costs more
  std::lock_guard lock(naming_mutex_);
  if (is_named_.load(std::memory_order_relaxed)) return group_;
  if (!group_) group_ = std::make_shared<GroupView>(view_of(backend_, options_));
  if (!counter_file_) return group_;
  failure_report_->set_view(group_);
  counters_ = counter_file_->add({.id = failure_report_->group().id,
                                  .rank = group_->rank,
                                  .size = group_->size,
                                  .global_rank = static_cast<int>(group_->global_rank()),
                                  .name = group_->name});
  is_named_.store(true, std::memory_order_release);
  return group_;
}

std::chrono::milliseconds Diagnosis::timeout_of(const Issue& issue) const {
  const bool own = issue.timeout > std::chrono::milliseconds(0);
  return own ? issue.timeout : options_.timeout;
}

void Diagnosis::make(Issue& issue, c10::function_ref<void()> make_call) {
  issue.number = counter_.next(is_message(issue));
  for (Request& request : issue.requests)
    request.number = issue.number.of_kind(is_message(request));
  group();
  recorder_.capture_stack();
  failure_report_->note(issue);
  issue.profiled = profiled();
  if (!issue.profiled) return make_call();
  record_call(*group(), issue, make_call);
}

void Diagnosis::count_made(const Issue& issue) {
  const uint64_t number = issue.number.number();
  if (issue.number.is_message)
    counters_->made_message(number, kind_of(issue), root_of(issue, -1));
  else
    counters_->made_collective(number, kind_of(issue));
}

CallNumber Diagnosis::end_block() {
  const CallNumber number = counter_.end_block();
  recorder_.capture_stack();
  std::lock_guard lock(mutex_);
  if (!collected_.empty()) in_blocks_[number.operation] = std::exchange(collected_, {});
  return number;
}

void Diagnosis::collected(const Issue& issue) {
  if (!recorder_.enabled()) return;
  const auto id = recorder_.record(group(), issue, options_.timeout, {});
  std::lock_guard lock(mutex_);
  collected_.push_back(id);
}

void Diagnosis::over(const Issue& issue, std::chrono::steady_clock::time_point started,
                     std::chrono::steady_clock::time_point ended) {
  count_made(issue);
  recorder_.record_over(*counters_, counted(issue), group(), issue, timeout_of(issue), started,
                        ended);
}

void Diagnosis::launching(const Issue& issue, const std::shared_ptr<Pending>& pending) {
  group();
  count_made(issue);
  counters_->launched();
  pending->set_counters(recorder_, counters_, counted(issue));
  FlightIds ids;
  if (!recorder_.enabled())
    return pending->set_failure_report(recorder_, std::move(ids), failure_report_);
  if (issue.number.is_block) {
    std::lock_guard lock(mutex_);
    ids = std::exchange(in_blocks_[issue.number.operation], {});
    in_blocks_.erase(issue.number.operation);
  }
  if (!ids.empty()) recorder_.attach(ids, pending);
  const auto& group = this->group();
  ids.push_back(recorder_.record(group, issue, timeout_of(issue), pending));
  pending->set_failure_report(recorder_, std::move(ids), failure_report_);
}

void Diagnosis::count_refused() {
  group();
  counters_->refused();
}

Error Diagnosis::refused(Error error) {
  group();
  return failure_report_->after(std::move(error));
}

void Diagnosis::launched(const Issue& issue, Completer& completer,
                         const std::shared_ptr<Pending>& pending) {
  if (!hooked_.load(std::memory_order_relaxed)) return;
  std::shared_ptr<CompletionHooks> hooks;
  {
    std::lock_guard lock(mutex_);
    hooks = hooks_;
  }
  if (!hooks) return;
  const CallNumber& number = issue.number;
  hooks->watch(completer, pending, issue.description.type, number.number());
}

void Diagnosis::set_hook(CompletionHooks::Hook hook) {
  const std::string name = group()->name;
  std::lock_guard lock(mutex_);
  if (hooks_) throw_misuse("the group has a completion hook already; it takes one");
  hooks_ = std::make_shared<CompletionHooks>(hook, name);
  hook_ = std::move(hook);
  hooked_ = true;
}

void Diagnosis::wait_for_hook() {
  std::shared_ptr<CompletionHooks> hooks;
  {
    std::lock_guard lock(mutex_);
    hooks = hooks_;
  }
  if (hooks) hooks->wait();
}

void Diagnosis::remove_hook() {
  std::shared_ptr<CompletionHooks> hooks;  // joins a thread, so destroyed outside the lock
  CompletionHooks::Hook hook;
  {
    std::lock_guard lock(mutex_);
    hooks.swap(hooks_);
    hook.swap(hook_);
    hooked_ = false;
  }
}

void Diagnosis::leave() {
  std::shared_ptr<CompletionHooks> hooks;
  {
    std::lock_guard lock(mutex_);
    hooks.swap(hooks_);
  }
  std::lock_guard lock(naming_mutex_);
  is_named_ = false;
  counters_.reset();
  counter_file_.reset();
}

void Diagnosis::reopen(std::shared_ptr<CounterFile> counter_file,
                       std::shared_ptr<FailureReport> failure_report) {
  {
    std::lock_guard lock(naming_mutex_);
    counter_file_ = std::move(counter_file);
    failure_report_ = std::move(failure_report);
  }
  const std::string name = group()->name;
  std::lock_guard lock(mutex_);
  if (hook_) hooks_ = std::make_shared<CompletionHooks>(hook_, name);
}

}  // namespace hccl_like

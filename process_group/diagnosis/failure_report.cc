#include "process_group/diagnosis/failure_report.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/base/log.h"
#include "core/base/own_thread.h"
#include "process_group/diagnosis/error_file.h"
#include "process_group/diagnosis/errors.h"
#include "process_group/diagnosis/flight_recorder_dump.h"
#include "process_group/diagnosis/program.h"
#include "process_group/diagnosis/store_server.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kAsked = "hccl-like/asked";
// Time to log the table and announce it after the last poll.
constexpr milliseconds kGrace{150};
constexpr milliseconds kLook{10};
// Limit for the interpreter to list its threads.
constexpr milliseconds kLines{100};
// Limit to read call site names from the store.
constexpr milliseconds kWaitForNames{500};

// The underlying store, which all groups and attempts share. Null for a Python store (GIL).
c10::intrusive_ptr<c10d::Store> bottom_of(c10::intrusive_ptr<c10d::Store> store) {
  if (auto* prefix = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefix->getUnderlyingNonPrefixStore();
  const bool ours = dynamic_cast<c10d::TCPStore*>(store.get()) != nullptr ||
                    dynamic_cast<c10d::HashStore*>(store.get()) != nullptr ||
                    dynamic_cast<c10d::FileStore*>(store.get()) != nullptr;
  return ours ? store : nullptr;
}

struct Done {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

}  // namespace

FailureReport::FailureReport(FlightRecorder& recorder, const Config& config,
                             const c10::intrusive_ptr<c10d::Store>& store, const Group& group)
    : recorder_(recorder),
      limit_(config.report),
      group_(group),
      sites_(config.call_sites
                 ? std::make_unique<CallSites>(bottom_of(store),
                                               "hccl-like/" + std::to_string(group.id) + "/")
                 : nullptr),
      timeout_(group.timeout) {
  if (group.size > 1 && limit_.count() > 0) store_ = bottom_of(store);
}

void FailureReport::set_view(std::shared_ptr<const GroupView> view) {
  std::lock_guard lock(mutex_);
  view_ = std::move(view);
}

Error FailureReport::after(Error error) {
  error = named(std::move(error));
  const bool asked_for = error.code == ErrorCode::kAborted && error.peer < 0;
  if (asked_for || met_.exchange(true)) return error;
  int global_rank = group_.rank;
  int lost = error.code == ErrorCode::kPeerLost ? error.peer : -1;
  {
    std::lock_guard lock(mutex_);
    if (view_) global_rank = static_cast<int>(view_->global_rank());
    if (view_ && lost >= 0)
      lost = static_cast<int>(view_->global_ranks.at(static_cast<size_t>(lost)));
  }
  if (store_ && cause(error) == ErrorCode::kTimeout) {
    error.message +=
        answered_within(limit_ + kGrace + kGrace,
                        [text = to_string(error)](FailureReport& self) { return self.meet(text); });
  }
  recorder_.note({to_string(error), lost});
  dump_after(error, recorder_, global_rank);
  if (std::getenv("TORCHELASTIC_ERROR_FILE") != nullptr)
    write_error_file("rank " + std::to_string(global_rank) + " [" + label(error) +
                     "]: " + to_string(error));
  return error;
}

Error FailureReport::named(Error error) {
  if (!sites_) return error;
  std::string text = answered_within(kWaitForNames, [message = error.message](FailureReport& self) {
    return self.sites_->named(message);
  });
  if (!text.empty()) error.message = std::move(text);
  return error;
}

// Empty if the work takes longer.
std::string FailureReport::answered_within(milliseconds limit,
                                           std::function<std::string(FailureReport&)> work) {
  const auto text = std::make_shared<std::string>();
  const auto mutex = std::make_shared<std::mutex>();
  within(limit, [text, mutex, work = std::move(work)](FailureReport& self) {
    std::string answer = work(self);
    std::lock_guard lock(*mutex);
    *text = std::move(answer);
  });
  std::lock_guard lock(*mutex);
  return *text;
}

// An unresponsive store must not delay the error.
void FailureReport::within(milliseconds limit, std::function<void(FailureReport&)> work) {
  const auto done = std::make_shared<Done>();
  try {
    own_thread("tells other ranks where this one is", [self = shared_from_this(), done,
                                                       work = std::move(work)] {
      try {
        if (!self->store_ || !server_has_gone(*self->store_)) work(*self);
      } catch (const std::exception& problem) {
        log_info([&] {
          return std::string("ranks could not tell each other where they are: ") + problem.what();
        });
      }
      std::lock_guard lock(done->mutex);
      done->done = true;
      done->changed.notify_all();
    }).detach();
  } catch (const Exception&
               problem) {  // must not replace the original error, which this thread only extends
    return log_warn(problem.what());
  }
  std::unique_lock lock(done->mutex);
  done->changed.wait_for(lock, limit, [&] { return done->done; });
}

std::string FailureReport::key(const std::string& what) const {
  return "hccl-like/" + std::to_string(group_.id) + "/report/" + what;
}

void FailureReport::put(const RankReport& report) {
  store_->set(key(std::to_string(group_.rank)), encode(report));
}

std::optional<RankReport> FailureReport::get(int rank) {
  const std::string from = key(std::to_string(rank));
  if (!store_->check({from})) return std::nullopt;
  auto report = decode(store_->get_to_str(from));
  return report && report->rank == rank ? std::move(report) : std::nullopt;
}

RankReport FailureReport::own_report(const std::string& error) {
  std::shared_ptr<const GroupView> view;
  {
    std::lock_guard lock(mutex_);
    view = view_;
  }
  RankReport report = report_of(recorder_, view.get(), program_threads(kLines));
  report.rank = group_.rank;
  report.error = error;
  return report;
}

void FailureReport::ask() {
  const int64_t number = store_->add(kAsked, 1);
  store_->set(kAsked + ("/" + std::to_string(number)), std::to_string(group_.id));
}

// The first rank collects the reports. Returns the verdict.
std::string FailureReport::meet(const std::string& error) {
  const auto until = steady_clock::now() + limit_;
  const bool first = store_->add(key("collector"), 1) == 1;
  if (first) ask();
  const RankReport own = own_report(error);
  put(own);
  if (first) return collect(own, until);
  while (!store_->check({key("table")})) {
    if (steady_clock::now() >= until + kGrace) return {};
    std::this_thread::sleep_for(kLook);
  }
  return store_->get_to_str(key("table"));
}

std::string FailureReport::collect(const RankReport& own, steady_clock::time_point until) {
  std::vector<std::optional<RankReport>> reports(static_cast<size_t>(group_.size));
  reports[static_cast<size_t>(group_.rank)] = own;
  const auto missing = [](const auto& report) { return !report; };
  while (true) {
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      if (!missing(reports[rank])) continue;
      if (auto report = get(static_cast<int>(rank))) reports[rank] = std::move(report);
      if (steady_clock::now() > until) break;
    }
    if (std::ranges::none_of(reports, missing) || steady_clock::now() > until) break;
    std::this_thread::sleep_for(kLook);
  }
  std::string name;
  {
    std::lock_guard lock(mutex_);
    if (view_) name = view_->name;
  }
  log_warn("a call of group '" + name + "' ran into its time-out; where its " +
           std::to_string(group_.size) + " ranks are:" + table_of(reports, own));
  std::string verdict = verdict_of(reports, own);
  store_->set(key("table"), verdict);
  return verdict;
}

c10::intrusive_ptr<c10d::Store> FailureReport::asked_through() const {
  return dynamic_cast<c10d::TCPStore*>(store_.get()) != nullptr ? store_ : nullptr;
}

void FailureReport::answer() {
  within(milliseconds(0), [](FailureReport& self) { self.put(self.own_report({})); });
}

int64_t FailureReport::questions(c10d::Store& store) {
  if (server_has_gone(store)) throw_error(ErrorCode::kSystem, "the store has ended");
  return store.add(kAsked, 0);
}

std::optional<uint64_t> FailureReport::question(c10d::Store& store, int64_t number) {
  const std::string from = kAsked + ("/" + std::to_string(number));
  if (!store.check({from})) return std::nullopt;
  const std::string text = store.get_to_str(from);
  uint64_t group = 0;
  std::from_chars(text.data(), text.data() + text.size(), group);
  return group;
}

}  // namespace hccl_like

// Runs one rank: does the work of Runtime and its user in one thread.
#include <algorithm>
#include <utility>

#include "collectives/engine/engine.h"
#include "collectives/engine/runtime.h"
#include "tests/fault_simulation/sockets/job.h"
#include "transport/mesh/mesh.h"

namespace hccl_like::fault_simulation::sockets {

namespace {

std::string written(ProcessRecord record) {
  record.settings.clear();
  return record.serialize();
}

}  // namespace

void Job::enter(int rank, Phase phase) {
  if (network_.current_is_dead()) return;
  check_time(rank);
  Report& report = reports_[static_cast<size_t>(rank)];
  report.phase = phase;
  report.since = now;
  if (phase != Phase::kCalling || first_call_) return;
  first_call_ = network_.steps();
  arm();
}

void Job::live(int rank) {
  try {
    take_part(rank);
  } catch (const Exception& exception) {
    fail(rank, exception.error());
  }
  if (network_.current_is_dead()) return;
  enter(rank, Phase::kOver);
  if (const size_t open = network_.descriptors(reports_[static_cast<size_t>(rank)].process);
      open > 0)
    blame(rank, "left " + std::to_string(open) + " descriptors open");
}

void Job::fail(int rank, const Error& error) {
  if (network_.current_is_dead()) return;
  Report& report = reports_[static_cast<size_t>(rank)];
  report.error = error;
  report.failed_in = report.phase;
  report.failed_at = now;
  enter(rank, Phase::kLeaving);
}

// Nobody believes of a rank what it has not written itself.
void Job::check_members(int rank, const std::vector<ProcessRecord>& members) {
  if (network_.current_is_dead()) return;
  for (size_t member = 0; member < members.size(); ++member)
    if (written(members[member]) != reports_[member].record)
      blame(rank, "believes what rank " + std::to_string(member) + " has not written");
}

void Job::take_part(int rank) {
  Runtime runtime(config_);
  const Engine::Turns turns(runtime.engine());
  reports_[static_cast<size_t>(rank)].record = written(runtime.mesh().self());
  try {
    enter(rank, Phase::kHandshake);
    const auto communicator =
        runtime.create(store_, rank, ranks_, "world", timeout_, Deadline::after(meeting_));
    check_members(rank, communicator->members());
    make_calls(rank, *communicator, runtime.engine());
    enter(rank, Phase::kLeaving);
    linger(rank, runtime.engine());
  } catch (const Exception& exception) {
    // Before the farewell.
    fail(rank, exception.error());
  }
}

void Job::make_calls(int rank, Communicator& communicator, Engine& engine) {
  Engine::Turns turns(engine);
  for (const CallSpec& spec : calls_) {
    enter(rank, Phase::kCalling);
    Prepared prepared = Prepared::of(spec, rank, ranks_);
    std::vector<std::shared_ptr<Operation>> operations;
    for (Call& call : prepared.calls) operations.push_back(communicator.prepare(std::move(call)));
    communicator.launch(operations, /*waited_for=*/true);
    const auto done = [&] {
      return std::ranges::all_of(operations, [](const auto& one) { return one->done(); });
    };
    while (!done()) {
      // An engine may not go while it runs anything.
      if (network_.current_is_dead()) communicator.abort("killed");
      if (!turns.take()) network_.block(now + kMicrosecond);
    }
    std::vector<int> sources;
    for (const auto& operation : operations) {
      if (operation->error() != nullptr) throw Exception(*operation->error());
      sources.push_back(operation->source());
    }
    const std::string wrong = prepared.check(spec, rank, ranks_, sources);
    if (!wrong.empty() && !network_.current_is_dead())
      blame(rank, spec.describe() + " succeeded, but " + wrong);
    ++reports_[static_cast<size_t>(rank)].calls;
  }
}

// Some programs end together, for all the library knows; others do not.
void Job::linger(int rank, Engine& engine) {
  if (!lingers_) return;
  Engine::Turns turns(engine);
  const auto busy = [&](const Report& one) {
    return one.phase < Phase::kLeaving && !network_.over(one.process) &&
           !network_.stopped(one.process, now + 5 * kSecond);
  };
  while (!network_.current_is_dead() && std::ranges::any_of(reports_, busy))
    if (!turns.take()) network_.block(now + kMicrosecond);
  enter(rank, Phase::kLeaving);
}

}  // namespace hccl_like::fault_simulation::sockets

#include "collectives/selection/choose.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "collectives/registry/cost.h"
#include "collectives/verify/job.h"
#include "collectives/verify/simulate.h"
#include "core/base/error.h"

namespace hccl_like {

namespace {

// Slices must be equal on all ranks. If only some ranks know the sizes, there is one slice.
bool may_have_slices(Collective collective, const ChooseOptions& options) {
  using enum Collective;
  return !options.uneven && collective != kGather && collective != kScatter &&
         collective != kSend && collective != kRecv && collective != kBarrier;
}

bool has_one_order(const Algorithm& algorithm, const ChooseOptions& options) {
  return !options.deterministic || !reduces(algorithm.collective) || algorithm.sums_at_once;
}

bool fits(const Algorithm& algorithm, const Hosts& hosts, const ChooseOptions& options) {
  return fits(algorithm, hosts) && !(algorithm.equal_chunks && options.uneven) &&
         has_one_order(algorithm, options);
}

// Slices of at most slice_bytes fit the cache and need little scratch memory. If latency exceeds a
// quarter of the time, halves the number of slices.
Choice plan(const Algorithm& algorithm, uint64_t bytes, size_t element_bytes,
            const Topology& topology, const ChooseOptions& options) {
  uint64_t most = 1;
  if (may_have_slices(algorithm.collective, options)) {
    const uint64_t elements = std::max<uint64_t>(1, bytes / std::max<size_t>(1, element_bytes));
    const uint64_t slice_bytes = std::max<uint64_t>(1, options.slice_bytes);
    most = std::clamp<uint64_t>(bytes / slice_bytes + (bytes % slice_bytes != 0), 1, elements);
    most = std::min<uint64_t>(most, UINT32_MAX);
  }
  const uint64_t window = std::max<uint32_t>(1, options.slice_window);
  auto time = [&](uint64_t slices) {
    const Cost slice =
        cost_of(algorithm, topology.hosts.crossings(), (bytes + slices - 1) / slices);
    return estimate_ps(slice, slices, window, topology);
  };
  uint64_t best = time(most);
  for (uint64_t slices = most / 2; slices > 0; slices /= 2) best = std::min(best, time(slices));
  uint64_t slices = most;
  while (slices > 1 && time(slices) > best + best / 4) slices /= 2;
  return {&algorithm, static_cast<uint32_t>(slices), topology.size(), bytes, time(slices)};
}

// The simulated time, or nothing if the simulation is too long. After the first slices, each
// further slice takes as long as the previous one.
std::optional<uint64_t> simulated_ps(const Choice& choice, int root, const Topology& topology,
                                     size_t element_bytes, uint32_t window) {
  constexpr int kMostRanks = 64;
  constexpr uint64_t kMostSteps = 30'000;
  if (choice.size > kMostRanks) return std::nullopt;
  const Job job = make_job(*choice.algorithm, topology.hosts, root);
  uint64_t steps = 0;  // all ranks, one slice
  for (const Schedule& schedule : job.ranks) steps += schedule.steps().size();
  if (steps > kMostSteps) return std::nullopt;
  SimulateOptions options{.bytes = choice.bytes,
                          .element_bytes = std::max<size_t>(1, element_bytes),
                          .slices = choice.slices,
                          .window = std::max<uint32_t>(1, window)};
  const uint32_t some = 2 * options.window;
  if (choice.slices <= 2 * some || steps * choice.slices <= kMostSteps)
    return simulate(job, topology, options).makespan_ps;
  const auto take = [&](uint32_t slices) {
    options.bytes = choice.bytes / choice.slices * slices, options.slices = slices;
    return simulate(job, topology, options).makespan_ps;
  };
  const uint64_t first = take(some), more = take(2 * some);
  return more + (more - std::min(first, more)) * (choice.slices - 2 * some) / some;
}

// Flat trees suit some roots only, but one choice must serve all roots.
std::optional<uint64_t> slowest_root_ps(const Choice& choice, const Topology& topology,
                                        size_t element_bytes, uint32_t window) {
  const auto first = simulated_ps(choice, 0, topology, element_bytes, window);
  const Collective collective = choice.algorithm->collective;
  if (!first || (collective != Collective::kBroadcast && collective != Collective::kReduce))
    return first;
  const int other = topology.hosts.ranks(0)[static_cast<size_t>(topology.hosts.on(0) / 2)];
  return std::max(*first, *simulated_ps(choice, other, topology, element_bytes, window));
}

// Replaces the estimates of the best candidates by simulated times.
void put_on_the_clock(std::vector<Choice>& choices, const Topology& topology, size_t element_bytes,
                      uint32_t window) {
  const uint64_t best = std::ranges::min(choices, {}, &Choice::estimate_ps).estimate_ps;
  for (Choice& choice : choices) {
    const bool own = choice.algorithm->own != nullptr;  // of which the closed form knows less
    if (choice.estimate_ps > best * 5 / 2 && !own) continue;
    if (const auto time = slowest_root_ps(choice, topology, element_bytes, window))
      choice.estimate_ps = *time;
  }
}

std::string names(Collective collective, const Hosts& hosts, const ChooseOptions& options) {
  std::string result;
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (!fits(algorithm, hosts, options)) continue;
    if (!result.empty()) result += ", ";
    result += algorithm.name;
  }
  return result;
}

const Algorithm& forced(Collective collective, const Hosts& hosts, const ChooseOptions& options) {
  const Algorithm* algorithm = options.own != nullptr && options.own->name == options.forced
                                   ? options.own
                                   : find_algorithm(collective, options.forced);
  if (algorithm != nullptr && fits(*algorithm, hosts, options)) return *algorithm;
  const std::string wanted =
      std::string(name(collective)) + " algorithm \"" + std::string(options.forced) + '"';
  const std::string use = "; use one of: " + names(collective, hosts, options);
  if (algorithm == nullptr) throw_misuse("there is no " + wanted + use);
  if (!fits(*algorithm, hosts))
    throw_misuse("the " + wanted + " does not work for " + std::to_string(hosts.size()) +
                 " ranks on " + (hosts.count() == 1 ? "one host" : hosts.to_string()) + use);
  if (!has_one_order(*algorithm, options))
    throw_misuse("the " + wanted +
                 " sums in another order than the others, and deterministic results were asked "
                 "for" +
                 use);
  throw_misuse("the " + wanted + " needs chunks of one size" + use);
}

}  // namespace

std::vector<Choice> candidates(Collective collective, uint64_t bytes, size_t element_bytes,
                               const Topology& topology, const ChooseOptions& options) {
  const Topology shared = topology.with_sharing();
  std::vector<Choice> result;
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (!fits(algorithm, shared.hosts, options)) continue;
    result.push_back(plan(algorithm, bytes, element_bytes, shared, options));
  }
  if (options.own != nullptr && fits(*options.own, shared.hosts, options))
    result.push_back(plan(*options.own, bytes, element_bytes, shared, options));
  if (options.simulate && topology.hosts.count() > 1)
    put_on_the_clock(result, topology, element_bytes, options.slice_window);
  // Differences below 3 % are noise: the order of the list decides.
  const uint64_t best = std::ranges::min(result, {}, &Choice::estimate_ps).estimate_ps;
  const auto chosen = std::ranges::find_if(
      result, [&](const Choice& choice) { return choice.estimate_ps <= best + best / 32; });
  std::rotate(result.begin(), chosen, chosen + 1);
  std::stable_sort(result.begin() + 1, result.end(),
                   [](const Choice& a, const Choice& b) { return a.estimate_ps < b.estimate_ps; });
  return result;
}

Choice choose(Collective collective, uint64_t bytes, size_t element_bytes, const Topology& topology,
              const ChooseOptions& options) {
  // Sizes that only some ranks know must not influence the choice: all ranks assume 0.
  if (options.uneven) bytes = 0;
  if (!options.forced.empty()) {
    return plan(forced(collective, topology.hosts, options), bytes, element_bytes,
                topology.with_sharing(), options);
  }
  return candidates(collective, bytes, element_bytes, topology, options).front();
}

std::string explain(const Choice& choice) {
  char time[32];
  const double us = static_cast<double>(choice.estimate_ps) * 1e-6;
  std::snprintf(time, sizeof time, us < 1000 ? "%.2f us" : "%.2f ms", us < 1000 ? us : us / 1000);
  std::string result(name(choice.algorithm->collective));
  result += " of " + std::to_string(choice.bytes) + (choice.bytes == 1 ? " byte" : " bytes");
  result += " on " + std::to_string(choice.size) + (choice.size == 1 ? " rank: " : " ranks: ");
  result += choice.algorithm->name;
  result += " in " + std::to_string(choice.slices) + (choice.slices == 1 ? " slice" : " slices");
  return result + ", about " + time;
}

std::string explain(const std::vector<Choice>& candidates) {
  std::string result;
  for (const Choice& choice : candidates) result += explain(choice) + '\n';
  return result;
}

}  // namespace hccl_like

#include "tests/fault_simulation/calls.h"

#include <algorithm>
#include <numeric>

namespace hccl_like::fault_simulation {
namespace {

constexpr int32_t kUntouched = -77;

// Element i of what a rank gives to a call: small, so that sums are exact, and different for each.
int32_t given(const CallSpec& spec, int rank, size_t i) {
  uint64_t z = (spec.number * 64u + static_cast<uint64_t>(rank)) * 1'000'003u + i;
  z = (z ^ (z >> 15)) * 0x2c1b3c6du;
  return static_cast<int32_t>((z ^ (z >> 12)) % 1000);
}

Region all_of(std::vector<int32_t>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(int32_t)};
}

std::vector<Region> parts_of(std::vector<int32_t>& values, size_t parts) {
  std::vector<Region> regions;
  const size_t each = values.size() / parts;
  for (size_t i = 0; i < parts; ++i)
    regions.push_back(
        {reinterpret_cast<std::byte*>(values.data() + i * each), each * sizeof(int32_t)});
  return regions;
}

constexpr size_t kElement = sizeof(int32_t);

int32_t combined(const CallSpec& spec, int ranks, size_t i) {
  int32_t result = given(spec, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int32_t one = given(spec, rank, i);
    result = spec.op == ReduceOp::kMax ? std::max(result, one) : result + one;
  }
  return result;
}

// The expected contents of an output, where the call writes it.
std::vector<int32_t> expected(const CallSpec& spec, int rank, int ranks,
                              const std::vector<int>& sources) {
  using enum Collective;
  const size_t n = spec.elements;
  std::vector<int32_t> result;
  const auto take = [&](int from, size_t begin) {
    for (size_t i = 0; i < n; ++i) result.push_back(given(spec, from, begin + i));
  };
  if (spec.kind == CallSpec::Kind::kShift) {
    take((rank + ranks - 1) % ranks, 0);
    return result;
  }
  if (spec.kind == CallSpec::Kind::kHail) {
    for (const int source : sources) take(source, 0);
    return result;
  }
  const auto own = static_cast<size_t>(rank);
  switch (spec.collective) {
    case kAllReduce:
    case kReduce:
      for (size_t i = 0; i < n; ++i) result.push_back(combined(spec, ranks, i));
      break;
    case kReduceScatter:
      for (size_t i = 0; i < n; ++i) result.push_back(combined(spec, ranks, own * n + i));
      break;
    case kBroadcast:
      take(spec.root, 0);
      break;
    case kAllGather:
    case kGather:
      for (int from = 0; from < ranks; ++from) take(from, 0);
      break;
    case kScatter:
      take(spec.root, own * n);
      break;
    case kAllToAll:
      for (int from = 0; from < ranks; ++from) take(from, own * n);
      break;
    default:
      break;
  }
  return result;
}

}  // namespace

CallSpec CallSpec::draw(Random& random, int ranks, uint32_t number) {
  CallSpec spec;
  spec.number = number;
  spec.root = random.rank(ranks);
  const uint64_t kind = random.below(11);
  if (kind < 9)
    spec.collective = static_cast<Collective>(kind);
  else
    spec.kind = kind == 9 ? Kind::kShift : Kind::kHail;
  if (random.chance(30)) spec.op = ReduceOp::kMax;
  // Most are small: what is large is as rare as it takes long.
  static constexpr size_t kMost[] = {3, 3, 40, 40, 40, 100, 100, 300};
  spec.elements = random.below(kMost[random.below(std::size(kMost))] + 1);
  return spec;
}

std::string CallSpec::describe() const {
  const std::string what = kind == Kind::kShift  ? "shift"
                           : kind == Kind::kHail ? "hail"
                                                 : std::string(hccl_like::name(collective));
  return what + "(" + std::to_string(elements) + ", root " + std::to_string(root) + ")";
}

Prepared Prepared::of(const CallSpec& spec, int rank, int ranks) {
  using enum Collective;
  Prepared made;
  const auto size = static_cast<size_t>(ranks);
  const auto own = static_cast<size_t>(rank);
  const size_t n = spec.elements;
  const bool at_root = rank == spec.root;
  size_t in = n, out = n;
  Call call{.collective = spec.collective, .type = DataType::kInt32, .op = spec.op};
  if (spec.kind == CallSpec::Kind::kHail) {
    out = at_root ? n * (size - 1) : 0;
  } else if (spec.kind == CallSpec::Kind::kCollective) {
    const Collective what = spec.collective;
    if (has_root(what)) call.root = spec.root;
    if (what == kReduceScatter || what == kAllToAll || what == kScatter) in = n * size;
    if (what == kScatter && !at_root) in = 0;
    if (what == kAllGather || what == kAllToAll || what == kGather) out = n * size;
    if (what == kGather && !at_root) out = 0;
    if (what == kBarrier) in = out = 0;
  }
  for (size_t i = 0; i < in; ++i) made.input.push_back(given(spec, rank, i));
  made.output.assign(out, kUntouched);

  const auto message = [&](Collective way, int peer, Region region) {
    Call one{.collective = way, .type = DataType::kInt32, .root = peer, .tag = spec.number};
    (way == kSend ? one.input : one.output) = Layout::even(region, 1, kElement);
    made.calls.push_back(std::move(one));
  };
  if (spec.kind == CallSpec::Kind::kShift) {
    message(kSend, (rank + 1) % ranks, all_of(made.input));
    message(kRecv, (rank + ranks - 1) % ranks, all_of(made.output));
    return made;
  }
  if (spec.kind == CallSpec::Kind::kHail) {
    if (!at_root) message(kSend, spec.root, all_of(made.input));
    for (size_t i = 0; at_root && i + 1 < size; ++i)
      message(kRecv, kAnySource, parts_of(made.output, size - 1)[i]);
    return made;
  }
  const auto single = [&](std::vector<int32_t>& values) {
    const Region region = all_of(values);
    return Layout::single({&region, 1}, own, kElement);
  };
  const auto chunks = [&](std::vector<int32_t>& values) {
    return values.empty() && n > 0 ? Layout() : Layout::list(parts_of(values, size), kElement);
  };
  switch (spec.collective) {
    case kAllGather:
    case kGather:
      call.input = single(made.input);
      call.output = chunks(made.output);
      break;
    case kReduceScatter:
    case kScatter:
      call.input = chunks(made.input);
      call.output = single(made.output);
      break;
    case kAllToAll:
      call.input = chunks(made.input);
      call.output = chunks(made.output);
      break;
    case kBarrier:
      break;
    default:
      call.input = Layout::even(all_of(made.input), 1, kElement);
      call.output = Layout::even(all_of(made.output), 1, kElement);
  }
  made.calls.push_back(std::move(call));
  return made;
}

std::string Prepared::check(const CallSpec& spec, int rank, int ranks,
                            const std::vector<int>& sources) const {
  for (size_t i = 0; i < input.size(); ++i)
    if (input[i] != given(spec, rank, i)) return "its input has changed at " + std::to_string(i);
  const bool writes = spec.kind != CallSpec::Kind::kCollective ||
                      spec.collective != Collective::kReduce || rank == spec.root;
  if (!writes || output.empty()) return {};
  if (spec.kind == CallSpec::Kind::kHail) {
    std::vector<int> once = sources;
    std::ranges::sort(once);
    for (int other = 0, at = 0; other < ranks; ++other)
      if (other != rank && once[static_cast<size_t>(at++)] != other)
        return "a rank was heard twice";
  }
  const std::vector<int32_t> want = expected(spec, rank, ranks, sources);
  for (size_t i = 0; i < output.size(); ++i)
    if (output[i] != want[i])
      return "element " + std::to_string(i) + " is " + std::to_string(output[i]) + ", not " +
             std::to_string(want[i]);
  return {};
}

}  // namespace hccl_like::fault_simulation

#include "process_group/backend/own_algorithms.h"

#include <exception>
#include <span>

#include "collectives/call/fingerprint.h"
#include "collectives/own/own_algorithm.h"
#include "core/base/error.h"

namespace hccl_like {
namespace {

// In the place of a digest.
constexpr uint64_t kUnusable = 0, kUnknown = 1;

MakeOwnAlgorithm& maker() {
  static MakeOwnAlgorithm make;
  return make;
}

std::vector<int> layout_of(const Hosts& hosts) {
  std::vector<int> layout;
  for (int rank = 0; rank < hosts.size(); ++rank) layout.push_back(hosts.host(rank));
  return layout;
}

// Every rank's digest, by rank.
std::vector<uint64_t> gather(Communicator& communicator, uint64_t mine) {
  std::vector<uint64_t> all(static_cast<size_t>(communicator.size()));
  const Region from{reinterpret_cast<std::byte*>(&mine), sizeof mine};
  const Region to{reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof mine};
  communicator.run(
      {.collective = Collective::kAllGather,
       .type = DataType::kUInt64,
       .input = Layout::single({&from, 1}, static_cast<size_t>(communicator.rank()), sizeof mine),
       .output = Layout::even(to, all.size(), sizeof mine)});
  return all;
}

void compare(Communicator& communicator, uint64_t mine, const std::string& names) {
  const std::vector<uint64_t> all = gather(communicator, mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto does = [&](size_t which) {
      return "rank " + std::to_string(which) +
             (all[which] == kUnusable  ? " cannot use it"
              : all[which] == kUnknown ? " knows none"
                                       : " made a schedule");
    };
    throw_misuse("ranks 0 and " + std::to_string(rank) + " do not have the same algorithm " +
                 names + ": " +
                 (all[0] > kUnknown && all[rank] > kUnknown
                      ? "their schedules differ; install one version of it on all ranks, and "
                        "let it depend on rank, size and topology alone"
                      : does(0) + ", and " + does(rank) +
                            "; register it on every rank, and see the error of the one"));
  }
}

}  // namespace

void set_own_algorithm_maker(MakeOwnAlgorithm make) { maker() = std::move(make); }

void add_own_algorithms(const Communicators& communicators, const ForcedAlgorithms& forced) {
  Communicator& host = *communicators.host();
  std::vector<std::shared_ptr<const OwnAlgorithm>> made;
  std::exception_ptr error;
  std::string names;
  uint64_t mine = kUnknown;
  for (const auto& [which, name] : forced.choices) {
    const auto collective = collective_named(which);
    if (!collective || find_algorithm(*collective, name) != nullptr) continue;
    names += (names.empty() ? "" : ", ") + which + ":" + name;
    if (host.size() == 1) continue;  // it copies, or does nothing
    try {
      const std::string json = maker() ? maker()(std::string(hccl_like::name(*collective)), name,
                                                 layout_of(host.topology().hosts))
                                       : "";
      if (json.empty()) continue;
      made.push_back(OwnAlgorithm::parse(json));
      if (std::string fault = made.back()->fault(); !fault.empty())
        throw_misuse("the " + which + " algorithm " + name + " is wrong: " + fault +
                     "; hccl_like.schedule tries it without a job (docs/own-algorithms.md)");
      mine = mix(mine, made.back()->schedules.digest) | 2;
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (names.empty()) return;
  if (host.size() == 1) return communicators.force(Communicator::without_own(forced));
  if (error) mine = kUnusable;
  communicators.force({});  // the comparison is a call, too
  std::exception_ptr different;
  try {
    compare(host, mine, names);
  } catch (...) {
    different = std::current_exception();
  }
  communicators.force(forced);
  if (error) std::rethrow_exception(error);
  if (different) std::rethrow_exception(different);
  for (const auto& own : made) communicators.add_own({own, &own->algorithm});
}

}  // namespace hccl_like

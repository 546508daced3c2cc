// Prints the quantities that grow with the number of ranks: messages, peers, schedules and records,
// for docs/scale.md. Measures no time.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "collectives/selection/choose.h"
#include "collectives/verify/job.h"
#include "collectives/verify/simulate.h"
#include "transport/mesh/mesh.h"
#include "transport/mesh/roster.h"

namespace hccl_like {
namespace {

constexpr int kRanksAHost = 8;
constexpr int kSizes[] = {16, 1024, 10'000, 100'000};

// A schedule's memory, and the peers that it talks to.
struct Footprint {
  size_t bytes = 0;
  size_t peers = 0;
  size_t rounds = 0;
};

Footprint footprint(const Schedule& schedule) {
  std::set<int> peers;
  for (const Step& step : schedule.steps())
    if (step.peer >= 0) peers.insert(step.peer);
  size_t sources = 0;
  for (const Step& step : schedule.steps()) sources += step.sources;
  return {schedule.steps().size() * (sizeof(Step) + sizeof(uint16_t)) +
              schedule.rounds() * sizeof(uint32_t) +
              (schedule.scratch_like().size() + sources) * sizeof(Slot),
          peers.size(), schedule.rounds()};
}

void calls() {
  std::printf(
      "| collective | bytes | ranks | algorithm | estimate | on the clock | messages a rank | "
      "peers of a rank | rounds | its schedule |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  struct Call {
    Collective collective;
    uint64_t bytes;
  };
  using enum Collective;
  for (const Call& call : {Call{kBarrier, 0}, Call{kAllReduce, 8}, Call{kAllReduce, 1 << 20},
                           Call{kAllReduce, uint64_t{1} << 30}, Call{kBroadcast, 1 << 20}}) {
    for (const int size : kSizes) {
      const Topology topology{.hosts = Hosts::even(size / kRanksAHost, kRanksAHost)};
      const Choice choice = choose(call.collective, call.bytes, 4, topology);
      Footprint rank;
      for (const int one : {0, size / 2, size - 1}) {
        const Footprint its = footprint(choice.algorithm->make(one, topology.hosts, 0));
        rank = {std::max(rank.bytes, its.bytes), std::max(rank.peers, its.peers),
                std::max(rank.rounds, its.rounds)};
      }
      std::string clock = "-", messages = "-";
      // A simulation holds all schedules at once.
      if (rank.bytes * static_cast<size_t>(size) * choice.slices < size_t{500} << 20) {
        const Simulation run = simulate(make_job(*choice.algorithm, topology.hosts), topology,
                                        {.bytes = call.bytes, .slices = choice.slices});
        char text[64];
        std::snprintf(text, sizeof text, "%.3g ms", static_cast<double>(run.makespan_ps) * 1e-9);
        clock = text;
        std::snprintf(text, sizeof text, "%.1f", static_cast<double>(run.messages) / size);
        messages = text;
      }
      std::printf(
          "| %s | %llu | %d | `%s`, %u slices | %.3g ms | %s | %s | %zu | %zu | %zu bytes |\n",
          std::string(name(call.collective)).c_str(), static_cast<unsigned long long>(call.bytes),
          size, std::string(choice.algorithm->name).c_str(), choice.slices,
          static_cast<double>(choice.estimate_ps) * 1e-9, clock.c_str(), messages.c_str(),
          rank.peers, rank.rounds, rank.bytes);
      std::fflush(stdout);
    }
  }
}

void records() {
  std::printf("\n| ranks | one record | all, packed | a rank |\n| --- | --- | --- | --- |\n");
  for (const int size : kSizes) {
    std::vector<std::string> texts;
    for (int rank = 0; rank < size; ++rank) {
      const int host = rank / kRanksAHost;
      char digits[33];
      std::snprintf(digits, sizeof digits, "%016llx%016llx",
                    static_cast<unsigned long long>(rank) * 0x9e3779b97f4a7c15u,
                    static_cast<unsigned long long>(rank) * 0xbf58476d1ce4e5b9u);
      ProcessRecord record{
          .id = digits,
          .nonce = std::string(digits) + digits,
          .host = "6f1c9a3e-5a0b-4f0e-9d27-000000000000:4026531840:" + std::to_string(host),
          .hostname = "node" + std::to_string(host),
          .pid = 10'000 + rank,
          .unix_name = "hccl-like-" + std::string(digits, 16),
          .addresses = {"10.1." + std::to_string(host / 250) + '.' + std::to_string(host % 250)},
          .port = static_cast<uint16_t>(30'000 + rank % 30'000)};
      texts.push_back(record.serialize());
    }
    const size_t packed = pack_records(texts).size();
    std::printf("| %d | %zu bytes | %zu bytes | %zu bytes |\n", size, texts.back().size(), packed,
                packed / static_cast<size_t>(size));
  }
}

}  // namespace
}  // namespace hccl_like

int main() {
  hccl_like::calls();
  hccl_like::records();
}

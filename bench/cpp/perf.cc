// all_reduce_perf and its sisters: forks the ranks, runs the rows, prints them.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <sstream>
#include <vector>

#include "bench/cpp/bandwidth.h"
#include "bench/cpp/collective.h"
#include "bench/cpp/floor.h"
#include "bench/cpp/measure.h"
#include "bench/cpp/name_space.h"
#include "bench/cpp/options.h"
#include "bench/cpp/table.h"
#include "collectives/engine/runtime.h"
#include "core/settings/config.h"
#include "device/host/host_api.h"
#include "device/host/shared_memory.h"
#include "device/reduce/reduce.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like::bench {
namespace {

// An operation that takes longer is stuck; so is a whole benchmark that takes a day.
constexpr auto kTimeout = std::chrono::minutes(2);
constexpr auto kLongest = std::chrono::hours(24);

std::vector<size_t> allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<size_t> cores;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}

void pin(int rank) {
  const std::vector<size_t> cores = allowed_cores();
  if (cores.empty()) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores[static_cast<size_t>(rank) % cores.size()], &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

double combine(const std::vector<double>& values, int how) {
  if (how == 0) return values[0];
  if (how == 2) return std::ranges::min(values);
  if (how == 3) return std::ranges::max(values);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Everything that rank 0 needs of a rank to print a row.
struct Report {
  CpuTime load;
  std::vector<Timing> forms;

  std::string serialize() const {
    std::ostringstream out;
    out.precision(17);
    out << load.own;
    for (const Timing& t : forms)
      out << ' ' << t.median_us << ' ' << t.p99_us << ' ' << t.wrong << ' ' << t.floor_us;
    return out.str();
  }
  static Report parse(const std::string& text) {
    Report report;
    std::istringstream in(text);
    in >> report.load.own;
    for (Timing t; in >> t.median_us >> t.p99_us >> t.wrong >> t.floor_us;)
      report.forms.push_back(t);
    return report;
  }
};

class Benchmark {
 public:
  Benchmark(const Options& options, SharedBarrier& barrier, const Floor& floor, int rank,
            Store& store)
      : options_(options),
        shape_(shape(options.collective)),
        barrier_(barrier),
        floor_(floor),
        rank_(rank),
        store_(store),
        runtime_(Config::from_environment()),
        communicator_(runtime_.create(store, rank, options.ranks, "bench", kTimeout,
                                      Deadline::after(kTimeout))) {}

  int run() {
    const Machine machine = Machine::here();
    const std::string transport = runtime_.mesh().links().empty()
                                      ? "none"
                                      : runtime_.mesh().describe(*runtime_.mesh().links().front());
    if (rank_ == 0) std::cout << head(options_, machine, transport) << std::flush;
    const std::vector<Bandwidth> memory = bandwidths();
    if (rank_ == 0) std::cout << table_header() << std::flush;
    std::vector<Row> rows;
    for (const auto& [type, op, root] : cases())
      for (const uint64_t bytes : sizes(options_)) {
        Row row = measure_row(type, op, root, bytes);
        if (rank_ != 0) continue;
        std::cout << to_string(row, options_.checks > 0) << std::endl;
        rows.push_back(std::move(row));
      }
    if (rank_ != 0) return 0;
    std::cout << foot(rows) << std::flush;
    if (!options_.json.empty()) write_json(options_, machine, transport, memory, rows);
    if (!options_.csv.empty()) write_csv(options_.csv, rows);
    return wrong_values(rows) ? 1 : 0;
  }

 private:
  // Of one core, and of all ranks' cores together; printed. Nothing unless asked for.
  std::vector<Bandwidth> bandwidths() {
    if (!options_.bandwidth) return {};
    std::vector<Bandwidth> found = measure_bandwidths(barrier_, rank_, options_.ranks);
    const std::string prefix = "bench/bandwidth/";
    if (rank_ != 0) {
      std::ostringstream mine;
      for (const Bandwidth& one : found) mine << one.all << ' ';
      store_.set(prefix + std::to_string(rank_), mine.str());
      return {};
    }
    for (int rank = 1; rank < options_.ranks; ++rank) {
      std::istringstream theirs(
          store_.get(prefix + std::to_string(rank), Deadline::after(kTimeout)));
      double all = 0;
      for (Bandwidth& one : found)
        if (theirs >> all) one.all += all;
    }
    std::cout << to_string(found) << std::flush;
    return found;
  }

  struct Kind {
    NamedType type;
    NamedOp op;
    int root;
  };

  std::vector<Kind> cases() const {
    std::vector<int> roots{-1};
    if (shape_.rooted) {
      roots.resize(options_.root == "all" ? static_cast<size_t>(options_.ranks) : 1);
      std::iota(roots.begin(), roots.end(), options_.root == "all" ? 0 : std::stoi(options_.root));
    }
    const std::vector<NamedOp> reductions =
        shape_.reduces ? ops(options_) : std::vector<NamedOp>{{"none", ReduceOp::kSum}};
    std::vector<Kind> found;
    for (const NamedType& type : types(options_))
      for (const NamedOp& op : reductions)
        for (const int root : roots)
          if (!shape_.reduces || reduction(type.type, op.op).valid())
            found.push_back({type, op, root});
    return found;
  }

  // Those that exist and were asked for; false: out of place.
  std::vector<bool> forms() const {
    std::vector<bool> found;
    if (options_.form != "in-place" || !shape_.in_place) found.push_back(false);
    if (options_.form != "out-of-place" && shape_.in_place) found.push_back(true);
    return found;
  }

  Row measure_row(const NamedType& type, const NamedOp& op, int root, uint64_t bytes) {
    const uint64_t elements = bytes / size_of(type.type);
    const uint64_t count =
        shape_.shared() ? elements / static_cast<uint64_t>(options_.ranks) : elements;
    const Case row{rank_, options_.ranks, count, type.type, op.op, root};
    Report mine;
    const CpuTime before = CpuTime::now();
    for (const bool in_place : forms()) {
      Buffers buffers(shape_, row, in_place, options_.memory == "mapped" ? &host_ : nullptr);
      Timing timing = measure(*communicator_, barrier_, buffers, options_);
      constexpr int kRepeats = 10;
      if (options_.floor)
        timing.floor_us = floor_.measure(shape_, row, in_place, options_.dirty, options_.warmup,
                                         std::min(kRepeats, options_.iterations));
      mine.forms.push_back(timing);
    }
    mine.load = CpuTime::now() - before;
    return combined(row, type, op, gather(mine));
  }

  // Every rank's report, by rank; only rank 0 waits for the others'.
  std::vector<Report> gather(const Report& mine) {
    const std::string prefix = "bench/row" + std::to_string(row_number_++) + "/";
    if (rank_ != 0) {
      store_.set(prefix + std::to_string(rank_), mine.serialize());
      return {mine};
    }
    std::vector<Report> all{mine};
    for (int rank = 1; rank < options_.ranks; ++rank)
      all.push_back(
          Report::parse(store_.get(prefix + std::to_string(rank), Deadline::after(kTimeout))));
    return all;
  }

  Row combined(const Case& c, const NamedType& type, const NamedOp& op,
               const std::vector<Report>& all) const {
    const uint64_t elements = shape_.shared() ? c.count * static_cast<uint64_t>(c.ranks) : c.count;
    Row row{.size = elements * size_of(c.type),
            .count = c.count,
            .type = type.name,
            .op = op.name,
            .root = c.root};
    const std::vector<bool> kinds = forms();
    for (size_t form = 0; form < kinds.size(); ++form) {
      std::vector<double> medians, p99s, floors;
      Block block;
      for (const Report& report : all) {
        medians.push_back(report.forms[form].median_us);
        p99s.push_back(report.forms[form].p99_us);
        floors.push_back(report.forms[form].floor_us);
        block.wrong += report.forms[form].wrong;
      }
      block.time_us = combine(medians, options_.average);
      block.p99_us = combine(p99s, options_.average);
      block.floor_us = combine(floors, options_.average);
      block.algbw = static_cast<double>(row.size) / block.time_us / 1000;
      block.busbw = block.algbw * shape_.factor(c.ranks);
      (kinds[form] ? row.in_place : row.out_of_place) = block;
    }
    const CpuTime& load = all[0].load;
    double ours = 0;
    for (const Report& report : all) ours += report.load.own;
    constexpr double kTooShort = 0.1;  // seconds of all cores; the kernel counts in hundredths
    if (load.capacity >= kTooShort)
      row.foreign = std::clamp((load.busy - ours) / load.capacity, 0.0, 1.0);
    return row;
  }

  const Options& options_;
  const Shape& shape_;
  SharedBarrier& barrier_;
  const Floor& floor_;
  int rank_;
  Store& store_;
  Runtime runtime_;
  std::shared_ptr<Communicator> communicator_;
  Device host_{host_api()};
  int row_number_ = 0;
};

}  // namespace
}  // namespace hccl_like::bench

int main(int argc, char** argv) {
  using namespace hccl_like;
  int exit_code = 0;
  const auto options = bench::parse(argc, argv, &exit_code);
  if (!options) return exit_code;
  bench::SharedBarrier& barrier = *bench::SharedBarrier::anonymous();
  // A buffer may be a little longer than its row says, never more than a page.
  const size_t piece = (options->max_bytes / 4096 + 2) * 4096;
  const auto ranks = static_cast<size_t>(options->ranks);
  const SharedMemory arena =
      options->floor ? SharedMemory::create(2 * ranks * piece) : SharedMemory();
  const bool crowded = options->ranks > static_cast<int>(bench::allowed_cores().size());
  const bench::Floor floor(barrier, arena.data(), piece, crowded);
  const auto outcomes =
      run_ranks(options->ranks,
                [&](int rank, Store& store) {
                  if (options->pin) bench::pin(rank);
                  if (const auto& hosts = options->name_spaces; !hosts.empty())
                    bench::enter_name_space(bench::name_space_of(rank, options->ranks, hosts));
                  return bench::Benchmark(*options, barrier, floor, rank, store).run();
                },
                {.timeout = bench::kLongest});
  if (all_ok(outcomes)) return 0;
  std::cerr << "failed: " << to_string(outcomes) << "\n";
  return 1;
}

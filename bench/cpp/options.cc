#include "bench/cpp/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace hccl_like::bench {

const std::vector<NamedType> kTypes{
    {"int8", DataType::kInt8},
    {"uint8", DataType::kUInt8},
    {"int16", DataType::kInt16},
    {"uint16", DataType::kUInt16},
    {"int32", DataType::kInt32},
    {"uint32", DataType::kUInt32},
    {"int64", DataType::kInt64},
    {"uint64", DataType::kUInt64},
    {"half", DataType::kFloat16},
    {"float", DataType::kFloat32},
    {"double", DataType::kFloat64},
    {"bfloat16", DataType::kBFloat16},
    {"f8e4m3", DataType::kFloat8E4M3FN},
    {"f8e5m2", DataType::kFloat8E5M2},
    {"bool", DataType::kBool},
    {"complex64", DataType::kComplex64},
    {"complex128", DataType::kComplex128},
};

const std::vector<NamedOp> kOps{
    {"sum", ReduceOp::kSum},   {"prod", ReduceOp::kProduct}, {"max", ReduceOp::kMax},
    {"min", ReduceOp::kMin},   {"avg", ReduceOp::kAvg},      {"band", ReduceOp::kBitAnd},
    {"bor", ReduceOp::kBitOr}, {"bxor", ReduceOp::kBitXor},  {"mulsum", ReduceOp::kPreMulSum},
};

const std::vector<std::string> kCollectiveNames{
    "all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast",
    "reduce",     "gather",     "scatter",        "sendrecv", "barrier"};

namespace {

template <class Named>
std::vector<std::string> names(const std::vector<Named>& all) {
  std::vector<std::string> found;
  for (const Named& one : all) found.emplace_back(one.name);
  found.emplace_back("all");
  return found;
}

template <class Named>
std::vector<Named> chosen(const std::vector<Named>& all, const std::string& name) {
  if (name == "all") return all;
  const auto found = std::ranges::find_if(all, [&](const Named& one) { return name == one.name; });
  return {*found};
}

// "build/bench/all_reduce_perf" -> "all_reduce", or empty if the program is called otherwise.
std::string own_collective(const std::string& program) {
  const std::string file = program.substr(program.find_last_of('/') + 1);
  for (const std::string& name : kCollectiveNames)
    if (file == name + "_perf") return name;
  return {};
}

uint64_t smallest_element(const Options& options) {
  uint64_t smallest = UINT64_MAX;
  for (const NamedType& one : types(options))
    smallest = std::min<uint64_t>(smallest, size_of(one.type));
  return smallest;
}

// CLI11 understands -e 64M through this.
std::string as_bytes(std::string text) {
  try {
    return std::to_string(parse_size(std::move(text)));
  } catch (const std::invalid_argument& error) {
    throw CLI::ValidationError(error.what());
  }
}

}  // namespace

uint64_t parse_size(std::string text) {
  std::string upper = text;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const char* suffix : {"IB", "B"})
    if (upper.ends_with(suffix)) {
      upper.resize(upper.size() - std::string(suffix).size());
      break;
    }
  uint64_t unit = 1;
  for (const auto& [letter, bytes] :
       {std::pair{'K', 1ULL << 10}, std::pair{'M', 1ULL << 20}, std::pair{'G', 1ULL << 30}})
    if (!upper.empty() && upper.back() == letter) {
      unit = bytes;
      upper.pop_back();
      break;
    }
  if (upper.empty() || upper.size() > 15 ||
      !std::ranges::all_of(upper, [](unsigned char c) { return std::isdigit(c); }))
    throw std::invalid_argument("'" + text + "' is no size: write 8, 64K, 16M or 1G");
  return std::stoull(upper) * unit;
}

std::optional<Options> parse(int argc, char** argv, int* exit_code) {
  Options o;
  o.collective = own_collective(argv[0]);
  CLI::App app(
      "Collectives between processes of this host, measured as nccl-tests does, without Python.");
  if (o.collective.empty())
    app.add_option("collective", o.collective, "what to measure")
        ->required()
        ->check(CLI::IsMember(kCollectiveNames));
  app.add_option("-g,--nproc", o.ranks, "ranks to start (2)")->check(CLI::Range(1, 1024));
  app.add_option("-b,--minbytes", o.min_bytes, "smallest size; after 0 comes one element (8)")
      ->transform(as_bytes);
  app.add_option("-e,--maxbytes", o.max_bytes, "largest size (64M)")->transform(as_bytes);
  app.add_option("-i,--stepbytes", o.step_bytes, "add this much from row to row, instead of -f")
      ->transform(as_bytes);
  app.add_option("-f,--stepfactor", o.step_factor, "multiply by this from row to row (8)")
      ->check(CLI::Range(2, 1 << 30));
  app.add_option("-n,--iters", o.iterations, "timed iterations (20)")->check(CLI::PositiveNumber);
  app.add_option("-w,--warmup_iters", o.warmup, "untimed iterations before them (5)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-m,--agg_iters", o.aggregated,
                 "operations outstanding together in an iteration (1)")
      ->check(CLI::PositiveNumber);
  app.add_option("-c,--check", o.checks,
                 "check the results this many times per row, 0 for never (1)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-o,--op", o.op, "reduction, or all (sum)")->check(CLI::IsMember(names(kOps)));
  app.add_option("-d,--datatype", o.type, "element type, or all (float)")
      ->check(CLI::IsMember(names(kTypes)));
  app.add_option("-r,--root", o.root, "root of rooted collectives, or all (0)");
  app.add_option("-a,--average", o.average,
                 "time reported: 0 of rank 0, 1 average, 2 least, 3 greatest (1)")
      ->check(CLI::Range(0, 3));
  app.add_option("-z,--blocking", o.blocking,
                 "1: wait after every iteration; 0: wait after all of them (1)")
      ->check(CLI::Range(0, 1));
  app.add_option("-J,--json", o.json, "write everything to a JSON file");
  app.add_option("--csv", o.csv, "write the rows to a CSV file");
  app.add_flag("--dirty", o.dirty,
               "every rank rewrites its buffers before every iteration, untimed");
  app.add_option(
         "--batch", o.batch,
         "operations one after the other in an iteration; with --dirty the rewriting between "
         "them is timed (1)")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--memory", o.memory,
         "where the buffers lie: ordinary, or mapped, so that peers can reach them (ordinary)")
      ->check(CLI::IsMember({"ordinary", "mapped"}));
  app.add_flag("--floor", o.floor, "measure the least time that memory allows for each row");
  app.add_flag("--bandwidth", o.bandwidth, "measure memory first; needs a core for every rank");
  app.add_option("--form", o.form, "out-of-place, in-place, or both (both)")
      ->check(CLI::IsMember({"out-of-place", "in-place", "both"}));
  app.add_flag("--pin", o.pin, "tie rank r to core r, counted round");
  app.add_option("--namespaces", o.name_spaces,
                 "network namespaces that stand for hosts, e.g. a,b; ranks fill them in order")
      ->delimiter(',');
  try {
    app.parse(argc, argv);
    if (o.min_bytes > o.max_bytes) throw CLI::ValidationError("-b is above -e");
    if (o.root != "all" && (o.root.find_first_not_of("0123456789") != std::string::npos ||
                            o.root.empty() || o.root.size() > 4 || std::stoi(o.root) >= o.ranks))
      throw CLI::ValidationError("-r " + o.root + " is no rank of " + std::to_string(o.ranks));
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error);
    return std::nullopt;
  }
  return o;
}

std::vector<uint64_t> sizes(const Options& options) {
  if (options.collective == "barrier") return {0};
  std::vector<uint64_t> found;
  for (uint64_t at = options.min_bytes; at <= options.max_bytes;) {
    found.push_back(at);
    if (options.step_bytes)
      at += options.step_bytes;
    else
      at = at == 0 ? smallest_element(options) : at * options.step_factor;
  }
  if (found.back() != options.max_bytes) found.push_back(options.max_bytes);
  return found;
}

std::vector<NamedType> types(const Options& options) { return chosen(kTypes, options.type); }
std::vector<NamedOp> ops(const Options& options) { return chosen(kOps, options.op); }

}  // namespace hccl_like::bench

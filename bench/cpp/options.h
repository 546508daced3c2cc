#pragma once
// The command line of the benchmarks: nccl-tests' flags.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace hccl_like::bench {

struct Options {
  std::string collective;  // "all_reduce", the name of the program without _perf
  int ranks = 2;
  uint64_t min_bytes = 8;
  uint64_t max_bytes = 64 << 20;
  uint64_t step_bytes = 0;  // 0: multiply by step_factor
  uint64_t step_factor = 8;
  int iterations = 20;
  int warmup = 5;
  int aggregated = 1;
  int checks = 1;
  std::string op = "sum";
  std::string type = "float";
  std::string root = "0";
  int average = 1;
  int blocking = 1;
  std::string json;
  std::string csv;
  bool dirty = false;
  int batch = 1;
  std::string form = "both";  // or in-place, out-of-place
  bool pin = false;
  std::string memory = "ordinary";  // or mapped: peers can reach the buffers
  bool floor = false;               // measure the least time of each row, too
  bool bandwidth = false;           // and of memory as such
  std::vector<std::string> name_spaces;
};

// Names of the types and reductions on the command line and in the columns.
struct NamedType {
  const char* name;
  DataType type;
};
struct NamedOp {
  const char* name;
  ReduceOp op;
};
extern const std::vector<NamedType> kTypes;
extern const std::vector<NamedOp> kOps;
extern const std::vector<std::string> kCollectiveNames;

// The options, or what the program shall exit with (--help, a mistake; both are told on the
// terminal). The collective is the program's own name, or the first argument of a program called
// otherwise.
std::optional<Options> parse(int argc, char** argv, int* exit_code);

// "8", "64K", "16M", "16MiB", "1G" in bytes; throws std::invalid_argument.
uint64_t parse_size(std::string text);

// The sizes of the rows. The last one is max_bytes. Multiplying goes on after 0 with the smallest
// element of types().
std::vector<uint64_t> sizes(const Options& options);
// The types and reductions of the rows: one, or all.
std::vector<NamedType> types(const Options& options);
std::vector<NamedOp> ops(const Options& options);

}  // namespace hccl_like::bench

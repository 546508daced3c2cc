#pragma once
// Rows as nccl-tests prints them, and the same rows as JSON and CSV.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cpp/bandwidth.h"
#include "bench/cpp/options.h"

namespace hccl_like::bench {

struct Block {
  double time_us = 0;
  double p99_us = 0;
  double algbw = 0;  // GB/s
  double busbw = 0;
  size_t wrong = 0;
  double floor_us = 0;  // 0: not measured, or nothing to move
};

struct Row {
  uint64_t size = 0;
  uint64_t count = 0;
  std::string type;
  std::string op;
  int root = -1;
  std::optional<Block> out_of_place;
  std::optional<Block> in_place;
  std::optional<double>
      foreign;  // the share of the cores that others used; nothing if it was too short to tell
};

// A number with as many decimals as fit into the width, two at most.
std::string number(double value, size_t width);
// Three lines above the rows. nccl-tests' columns come first, so that parsers of those still work.
std::string table_header();
std::string to_string(const Row& row, bool checked);

struct Machine {
  std::string host, processor, kernel;
  long cores = 0;
  static Machine here();
};

// The head, as comment lines.
std::string head(const Options& options, const Machine& machine, const std::string& transport);
// The foot, as nccl-tests prints it.
std::string foot(const std::vector<Row>& rows);
size_t wrong_values(const std::vector<Row>& rows);

void write_json(const Options& options, const Machine& machine, const std::string& transport,
                const std::vector<Bandwidth>& memory, const std::vector<Row>& rows);
void write_csv(const std::string& path, const std::vector<Row>& rows);

}  // namespace hccl_like::bench

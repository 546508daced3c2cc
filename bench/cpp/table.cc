#include "bench/cpp/table.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace hccl_like::bench {
namespace {

std::string right(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string decimals(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string columns(const std::optional<Block>& block, bool checked) {
  if (!block)
    return "  " + right("N/A", 7) + "  " + right("N/A", 6) + "  " + right("N/A", 6) + "  " +
           right("N/A", 6);
  return "  " + right(number(block->time_us, 7), 7) + "  " + right(number(block->algbw, 6), 6) +
         "  " + right(number(block->busbw, 6), 6) + "  " +
         right(checked ? std::to_string(block->wrong) : "N/A", 6);
}

const std::optional<Block>& headline(const Row& row) {
  return row.in_place ? row.in_place : row.out_of_place;
}

nlohmann::json as_json(const std::optional<Block>& block) {
  if (!block) return nullptr;
  return {{"time_us", block->time_us},
          {"p99_us", block->p99_us},
          {"algbw", block->algbw},
          {"busbw", block->busbw},
          {"wrong", block->wrong},
          {"floor_us", block->floor_us > 0 ? nlohmann::json(block->floor_us) : nlohmann::json()}};
}

std::pair<double, size_t> sum_of_busbw(const std::vector<Row>& rows) {
  double sum = 0;
  size_t blocks = 0;
  for (const Row& row : rows)
    for (const auto* block : {&row.out_of_place, &row.in_place})
      if (*block) {
        sum += (*block)->busbw;
        ++blocks;
      }
  return {sum, blocks};
}

}  // namespace

std::string number(double value, size_t width) {
  for (const int digits : {2, 1})
    if (const std::string text = decimals(value, digits); text.size() <= width) return text;
  return decimals(value, 0);
}

std::string table_header() {
  const std::string names = "     time   algbw   busbw  #wrong",
                    units = "     (us)  (GB/s)  (GB/s)        ";
  return "#" + std::string(53, ' ') + "          out-of-place                     in-place\n" +
         "#       size         count      type   redop    root" + names + names +
         "      p99  load    floor  %floor\n" +
         "#        (B)    (elements)                          " + units + units +
         "     (us)   (%)     (us)     (%)\n";
}

std::string to_string(const Row& row, bool checked) {
  std::string text = right(std::to_string(row.size), 12) + "  " +
                     right(std::to_string(row.count), 12) + "  " + right(row.type, 8) + "  " +
                     right(row.op, 6) + "  " + right(std::to_string(row.root), 6);
  text += columns(row.out_of_place, checked) + columns(row.in_place, checked);
  const Block& best = *headline(row);
  text += "  " + right(number(best.p99_us, 7), 7);
  text += "  " + right(row.foreign ? decimals(100 * *row.foreign, 0) : "-", 4);
  const bool known = best.floor_us > 0;
  text += "  " + right(known ? number(best.floor_us, 7) : "-", 7);
  return text + "  " + right(known ? decimals(100 * best.floor_us / best.time_us, 0) : "-", 6);
}

Machine Machine::here() {
  utsname names{};
  ::uname(&names);
  Machine machine{.host = names.nodename,
                  .processor = names.machine,
                  .kernel = names.release,
                  .cores = ::sysconf(_SC_NPROCESSORS_ONLN)};
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      machine.processor = line.substr(line.find(':') + 2);
      break;
    }
  return machine;
}

std::string head(const Options& o, const Machine& machine, const std::string& transport) {
  std::ostringstream out;
  out << "# " << o.collective << "_perf: hccl-like " << HCCL_LIKE_VERSION << ", without Python\n"
      << "# host " << machine.host << ", " << machine.processor << ", " << machine.cores
      << " cores, kernel " << machine.kernel << "\n# ranks " << o.ranks << ", device cpu, "
      << o.memory << " memory, transport " << transport << (o.pin ? ", pinned" : "")
      << (o.dirty ? ", buffers rewritten before each iteration" : "") << "\n# minBytes "
      << o.min_bytes << " maxBytes " << o.max_bytes << " step: "
      << (o.step_bytes ? std::to_string(o.step_bytes) + "(bytes)"
                       : std::to_string(o.step_factor) + "(factor)")
      << " warmup iters: " << o.warmup << " iters: " << o.iterations
      << " agg iters: " << o.aggregated << " validation: " << o.checks << "\n#\n";
  return out.str();
}

size_t wrong_values(const std::vector<Row>& rows) {
  size_t wrong = 0;
  for (const Row& row : rows)
    for (const auto* block : {&row.out_of_place, &row.in_place})
      wrong += *block ? (*block)->wrong : 0;
  return wrong;
}

std::string foot(const std::vector<Row>& rows) {
  const auto [sum, blocks] = sum_of_busbw(rows);
  const size_t wrong = wrong_values(rows);
  std::ostringstream out;
  out << "# Out of bounds values : " << wrong << (wrong ? " FAILED" : " OK")
      << "\n# Avg bus bandwidth    : " << std::setprecision(5)
      << sum / static_cast<double>(blocks ? blocks : 1) << "\n";
  return out.str();
}

void write_json(const Options& o, const Machine& machine, const std::string& transport,
                const std::vector<Bandwidth>& memory, const std::vector<Row>& rows) {
  nlohmann::json bandwidths = nlohmann::json::array();
  for (const Bandwidth& one : memory)
    bandwidths.push_back(
        {{"loop", one.loop}, {"level", one.level}, {"one", one.one}, {"all", one.all}});
  nlohmann::json results = nlohmann::json::array();
  for (const Row& row : rows)
    results.push_back({{"size", row.size},
                       {"count", row.count},
                       {"type", row.type},
                       {"redop", row.op},
                       {"root", row.root},
                       {"out_of_place", as_json(row.out_of_place)},
                       {"in_place", as_json(row.in_place)},
                       {"foreign", row.foreign ? nlohmann::json(*row.foreign) : nlohmann::json()}});
  const auto [sum, blocks] = sum_of_busbw(rows);
  const nlohmann::json record{
      {"config",
       {{"collective", o.collective},
        {"ranks", o.ranks},
        {"device", "cpu"},
        {"backend", "hccl-like, C++"},
        {"compare", nullptr},
        {"transport", transport},
        {"datatype", o.type},
        {"op", o.op},
        {"root", o.root},
        {"minbytes", o.min_bytes},
        {"maxbytes", o.max_bytes},
        {"iters", o.iterations},
        {"warmup_iters", o.warmup},
        {"agg_iters", o.aggregated},
        {"check", o.checks},
        {"average", o.average},
        {"blocking", o.blocking},
        {"dirty", o.dirty},
        {"batch", o.batch},
        {"memory", o.memory},
        {"pin", o.pin}}},
      {"environment",
       {{"hccl_like", HCCL_LIKE_VERSION},
        {"torch", "none"},
        {"host", machine.host},
        {"processor", machine.processor},
        {"kernel", machine.kernel},
        {"cores", machine.cores}}},
      {"bandwidth_gb_per_s", bandwidths},
      {"results", results},
      {"out_of_bounds", wrong_values(rows)},
      {"average_bus_bandwidth", sum / static_cast<double>(blocks ? blocks : 1)},
  };
  std::ofstream file(o.json);
  file << record.dump(1) << "\n";
  if (!file.flush()) throw std::runtime_error("cannot write " + o.json);
}

void write_csv(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream file(path);
  file << "size,count,type,redop,root,foreign";
  for (const char* form : {"out_of_place", "in_place"})
    for (const char* name : {"time_us", "p99_us", "algbw", "busbw", "wrong", "floor_us"})
      file << ',' << form << '_' << name;
  file << "\n";
  for (const Row& row : rows) {
    file << row.size << ',' << row.count << ',' << row.type << ',' << row.op << ',' << row.root
         << ',';
    if (row.foreign) file << *row.foreign;
    for (const auto* block : {&row.out_of_place, &row.in_place}) {
      if (!*block) {
        file << ",,,,,,";
        continue;
      }
      file << ',' << (*block)->time_us << ',' << (*block)->p99_us << ',' << (*block)->algbw << ','
           << (*block)->busbw << ',' << (*block)->wrong << ',';
      if ((*block)->floor_us > 0) file << (*block)->floor_us;
    }
    file << "\n";
  }
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace hccl_like::bench

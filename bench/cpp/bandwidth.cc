#include "bench/cpp/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iomanip>
#include <limits>
#include <sstream>

#include "bench/cpp/move.h"
#include "bench/cpp/options.h"

namespace hccl_like::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Operands = std::vector<std::span<std::byte>>;

struct Loop {
  const char* name;
  size_t operands;
  std::function<void(const Operands&)> run;
};

Move move(std::vector<std::byte*> into, std::vector<const std::byte*> from, size_t bytes) {
  return {std::move(into), std::move(from), bytes};
}

const std::vector<Loop>& loops() {
  [[maybe_unused]] static volatile float kept;
  static const std::vector<Loop> all{
      {"read", 1, [](const Operands& o) { kept = read(o[0]); }},
      {"write", 1, [](const Operands& o) { overwrite(o[0], 0x3f800000); }},
      {"a = b", 2,
       [](const Operands& o) { run(move({o[0].data()}, {o[1].data()}, o[0].size()), false); }},
      {"a = b, streaming", 2,
       [](const Operands& o) { run(move({o[0].data()}, {o[1].data()}, o[0].size()), true); }},
      {"a += b", 2,
       [](const Operands& o) {
         run(move({o[0].data()}, {o[0].data(), o[1].data()}, o[0].size()), false);
       }},
      {"a = b + c", 3,
       [](const Operands& o) {
         run(move({o[0].data()}, {o[1].data(), o[2].data()}, o[0].size()), false);
       }},
      {"a = b = a + b", 2,
       [](const Operands& o) {
         run(move({o[0].data(), o[1].data()}, {o[0].data(), o[1].data()}, o[0].size()), false);
       }},
  };
  return all;
}

// The best of a few: what memory can do, and not what the neighbours leave of it.
double gigabytes_per_second(const Loop& loop, std::span<std::byte> memory) {
  const size_t each = memory.size() / loop.operands / 64 * 64;
  Operands operands;
  for (size_t i = 0; i < loop.operands; ++i) operands.push_back(memory.subspan(i * each, each));
  for (const auto& operand : operands) overwrite(operand, 0);  // zeros: sums stay what they are
  constexpr size_t kEnough = 16 << 20;  // bytes under one reading of the clock
  const size_t repeats = std::max<size_t>(1, kEnough / each);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    for (size_t k = 0; k < repeats; ++k) loop.run(operands);
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    least = std::min(least, took.count() / static_cast<double>(repeats));
  }
  return static_cast<double>(each) / least;
}

// Bytes of this core's cache of a level. sysconf would count all of a socket's third level.
size_t cache(int level, size_t otherwise) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    std::ifstream level_file(folder + "/level"), type_file(folder + "/type"),
        size_file(folder + "/size");
    int found = 0;
    std::string type, size;
    if (level_file >> found && type_file >> type && size_file >> size && found == level &&
        type != "Instruction")
      return parse_size(size);
  }
  return otherwise;
}

}  // namespace

std::array<Level, 3> levels() {
  const size_t second = cache(2, 1 << 20);
  const size_t third = std::max<size_t>(cache(3, 32 << 20), 4 * second);
  return {{{"L2", second / 2}, {"L3", third / 4}, {"DRAM", 4 * third}}};
}

std::vector<Bandwidth> measure_bandwidths(SharedBarrier& barrier, int rank, int ranks) {
  const auto everyone = static_cast<uint32_t>(ranks);
  std::vector<std::byte> memory(levels().back().bytes);
  std::vector<Bandwidth> found;
  for (const Loop& loop : loops())
    for (const Level& level : levels()) {
      Bandwidth measured{.loop = loop.name, .level = level.name};
      const std::span<std::byte> used = std::span(memory).first(level.bytes);
      barrier.wait(everyone);
      if (rank == 0) measured.one = gigabytes_per_second(loop, used);
      barrier.wait(everyone);
      measured.all = gigabytes_per_second(loop, used);
      found.push_back(measured);
    }
  return found;
}

std::string to_string(const std::vector<Bandwidth>& found) {
  std::ostringstream out;
  out << "# memory, GB/s of one operand (one core / all at once)\n#" << std::setw(18) << "";
  for (const Level& level : levels()) out << std::setw(18) << level.name;
  out << std::fixed << std::setprecision(1);
  std::string loop;
  for (const Bandwidth& one : found) {
    if (one.loop != loop) out << "\n#" << std::setw(18) << one.loop;
    loop = one.loop;
    out << std::setw(9) << one.one << " /" << std::setw(7) << one.all;
  }
  out << "\n#\n";
  return out.str();
}

}  // namespace hccl_like::bench

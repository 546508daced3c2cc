#include "base/flaws.h"

#include <array>
#include <bitset>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

namespace torch_sim {
namespace {

constexpr auto kFlaws = static_cast<size_t>(Flaw::kCount);

constexpr std::array<const char*, kFlaws> kNames = {
    "no-events",    "no-streams",      "no-native-handles", "no-pinned-memory",
    "no-resize",    "blocking-copies", "busy-streams",      "idle-streams",
    "hasty-events", "reused-events",   "hasty-reads",       "forgetful-streams",
    "no-offsets",   "hanging-fork",    "crashing-threads",  "block-copies",
    "no-hooks",     "no-operators",    "no-generators",     "no-indices",
    "slow-queries", "idle-calls"};

size_t place_of(const std::string& name) {
  for (size_t i = 0; i < kFlaws; ++i)
    if (name == kNames[i]) return i;
  std::string known;
  for (const char* each : kNames) known += std::string(known.empty() ? "" : ", ") + each;
  throw std::invalid_argument("TORCH_SIM_FLAWS: there is no '" + name + "', only " + known);
}

std::bitset<kFlaws> from_environment() {
  std::bitset<kFlaws> flaws;
  const char* text = std::getenv("TORCH_SIM_FLAWS");
  std::istringstream names(text ? text : "");
  for (std::string name; std::getline(names, name, ',');)
    if (!name.empty()) flaws.set(place_of(name));
  return flaws;
}

const std::bitset<kFlaws>& flaws() {
  static const std::bitset<kFlaws> found = from_environment();
  return found;
}

}  // namespace

bool has(Flaw flaw) { return flaws()[static_cast<size_t>(flaw)]; }

bool has_at_load(Flaw flaw) {
  try {
    return from_environment()[static_cast<size_t>(flaw)];
  } catch (const std::invalid_argument&) {
    return false;
  }
}

void check_flaws() { flaws(); }

}  // namespace torch_sim

#include "transport/fabric/fabric_address.h"

#include <cstdint>
#include <cstring>

namespace hccl_like {
namespace {

void add(std::string& text, std::string_view part) {
  const auto bytes = static_cast<uint16_t>(part.size());
  text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(part);
}

std::optional<std::string> take(std::string_view& text) {
  uint16_t bytes = 0;
  if (text.size() < sizeof bytes) return std::nullopt;
  std::memcpy(&bytes, text.data(), sizeof bytes);
  text.remove_prefix(sizeof bytes);
  if (text.size() < bytes) return std::nullopt;
  std::string part(text.substr(0, bytes));
  text.remove_prefix(bytes);
  return part;
}

}  // namespace

std::string FabricAddress::pack() const {
  std::string text(takes_devices ? "d" : reads_memory ? "r" : "-");
  text += mends ? 'm' : '-';
  add(text, provider);
  for (const End& end : ends) {
    add(text, end.network);
    add(text, end.name);
  }
  return text;
}

std::optional<FabricAddress> FabricAddress::parse(std::string_view text) {
  if (text.size() < 2 || std::string_view("dr-").find(text[0]) == std::string_view::npos ||
      std::string_view("m-").find(text[1]) == std::string_view::npos)
    return std::nullopt;
  FabricAddress address{.provider = {},
                        .reads_memory = text[0] != '-',
                        .takes_devices = text[0] == 'd',
                        .mends = text[1] == 'm',
                        .ends = {}};
  text.remove_prefix(2);
  auto provider = take(text);
  if (!provider) return std::nullopt;
  address.provider = std::move(*provider);
  while (!text.empty()) {
    auto network = take(text);
    auto name = network ? take(text) : std::nullopt;
    if (!name) return std::nullopt;
    address.ends.push_back({std::move(*network), std::move(*name)});
  }
  if (address.ends.empty()) return std::nullopt;
  return address;
}

std::vector<FabricPair> pair_ends(const FabricAddress& own, const FabricAddress& far) {
  std::vector<FabricPair> pairs{{0, 0}};
  std::vector<bool> taken(far.ends.size());
  for (size_t i = 1; i < own.ends.size(); ++i) {
    for (size_t j = 1; j < far.ends.size(); ++j) {
      if (taken[j] || own.ends[i].network != far.ends[j].network) continue;
      taken[j] = true;
      pairs.push_back({i, j});
      break;
    }
  }
  return pairs;
}

}  // namespace hccl_like

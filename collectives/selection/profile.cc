#include "collectives/selection/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace hccl_like {
namespace {

using Json = nlohmann::json;

Collective known_collective(std::string_view wanted, const std::string& where) {
  if (const auto collective = collective_named(wanted)) return *collective;
  throw_misuse(where + " names a collective that there is not: " + std::string(wanted));
}

// Holds a product of two sizes. An extension that all supported compilers have.
__extension__ using Wide = unsigned __int128;

// Compares with the geometric mean: no overflow, and equal on every rank.
bool nearer_to_second(uint64_t bytes, uint64_t first, uint64_t second) {
  const auto wide = [](uint64_t x) { return static_cast<Wide>(std::max<uint64_t>(x, 1)); };
  return wide(bytes) * wide(bytes) > wide(first) * wide(second);
}

}  // namespace

Profile Profile::parse(std::string_view text, const std::string& where) {
  const auto refuse = [&](const std::string& why) {
    throw_misuse(where + " is no profile that this version can use: " + why +
                 "; write it anew with hccl-like tune");
  };
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse("it is no JSON object");
  if (json.value("hccl_like_profile", Json()) != Json(1)) refuse("it is not of version 1");
  const auto layouts = json.find("layouts");
  if (layouts == json.end() || !layouts->is_object()) refuse("it has no layouts");
  Profile profile;
  for (const auto& [layout, collectives] : layouts->items()) {
    if (!collectives.is_object()) refuse("layout " + layout + " is no object");
    auto& rows = profile.layouts_[layout];
    for (const auto& [which, entries] : collectives.items()) {
      const Collective collective = known_collective(which, where);
      if (!entries.is_array()) refuse(which + " of layout " + layout + " is no list");
      Row& row = rows[static_cast<size_t>(collective)];
      for (const Json& entry : entries) {
        if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_unsigned() ||
            !entry[1].is_string())
          refuse("an entry of " + which + " is no pair of bytes and algorithm");
        const auto wanted = entry[1].get<std::string>();
        const Algorithm* algorithm = find_algorithm(collective, wanted);
        if (algorithm == nullptr) refuse("there is no " + which + " algorithm \"" + wanted + '"');
        row.push_back({entry[0].get<uint64_t>(), algorithm});
      }
      std::ranges::stable_sort(row, {}, &Best::bytes);
    }
  }
  return profile;
}

const Algorithm* Profile::find(Collective collective, const Hosts& hosts, uint64_t bytes) const {
  if (layouts_.empty()) return nullptr;
  const auto layout = layouts_.find(layout_name(hosts));
  if (layout == layouts_.end()) return nullptr;
  const Row& row = layout->second[static_cast<size_t>(collective)];
  if (row.empty()) return nullptr;
  size_t at = 0;
  while (at + 1 < row.size() && nearer_to_second(bytes, row[at].bytes, row[at + 1].bytes)) ++at;
  return row[at].algorithm->fits(hosts) ? row[at].algorithm : nullptr;
}

std::string layout_name(const Hosts& hosts) {
  const Hosts even = Hosts::even(hosts.count(), hosts.most());
  if (hosts.size() == even.size() && hosts == even)
    return std::to_string(hosts.count()) + 'x' + std::to_string(hosts.most());
  std::string name;
  for (int rank = 0; rank < hosts.size(); ++rank)
    name += (rank > 0 ? "," : "") + std::to_string(hosts.host(rank));
  return name;
}

}  // namespace hccl_like

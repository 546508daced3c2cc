#pragma once
// Parser for JSON from untrusted sources.
#include <string_view>

#include <nlohmann/json.hpp>

namespace hccl_like {

// Returns the value, or a discarded one if the text is malformed or nested too deeply. nlohmann's
// parser does not recurse, but copying, comparing and writing a value do. Never throws.
inline nlohmann::json parse_bounded(std::string_view text) {
  constexpr int kDeepest = 8;
  bool too_deep = false;
  auto value = nlohmann::json::parse(
      text,
      [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep |= depth > kDeepest;
        return !too_deep;
      },
      /*allow_exceptions=*/false);
  return too_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : value;
}

}  // namespace hccl_like

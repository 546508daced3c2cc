#include "transport/mesh/roster.h"

#include "core/base/error.h"
#include "transport/network/bounded_json.h"

namespace hccl_like {
namespace {

using Json = nlohmann::json;

// The fields of `to` that differ from `from`. Null marks a missing field.
Json difference(const Json& from, const Json& to) {
  Json patch = Json::object();
  for (const auto& [key, value] : to.items()) {
    const auto before = from.find(key);
    if (before == from.end() || *before != value) patch[key] = value;
  }
  for (const auto& [key, value] : from.items())
    if (!to.contains(key)) patch[key] = nullptr;
  return patch;
}

}  // namespace

std::string pack_records(std::span<const std::string> records) {
  Json all = Json::array();
  Json before = Json::object();
  for (const std::string& record : records) {
    Json now = parse_bounded(record);
    if (!now.is_object()) {
      all.push_back(record);
      continue;
    }
    all.push_back(difference(before, now));
    before = std::move(now);
  }
  return all.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::vector<std::string> unpack_records(std::string_view text, size_t count) {
  const Json all = parse_bounded(text);
  if (!all.is_array() || all.size() != count)
    throw_error(
        ErrorCode::kMismatch,
        "the list of ranks in the store is malformed; check that no other program writes there");
  std::vector<std::string> records;
  Json before = Json::object();
  for (const Json& one : all) {
    if (one.is_string()) {
      records.push_back(one.get<std::string>());
      continue;
    }
    if (!one.is_object())
      throw_error(ErrorCode::kMismatch, "the list of ranks in the store holds something else");
    for (const auto& [key, value] : one.items()) {
      if (value.is_null())
        before.erase(key);
      else
        before[key] = value;
    }
    records.push_back(before.dump(-1, ' ', true, Json::error_handler_t::replace));
    // Bounds the expansion: each record inherits the fields of its predecessor.
    if (records.back().size() > kLongestRecord)
      throw_error(ErrorCode::kMismatch,
                  "the list of ranks in the store holds one that is too long");
  }
  return records;
}

}  // namespace hccl_like

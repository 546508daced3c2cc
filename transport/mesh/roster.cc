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

void visit_records(std::string_view text, size_t count,
                   const std::function<void(const Json& record)>& visit) {
  const Json all = parse_bounded(text);
  if (!all.is_array() || all.size() != count)
    throw_error(
        ErrorCode::kMismatch,
        "the list of ranks in the store is malformed; check that no other program writes there");
  Json record = Json::object();
  for (const Json& one : all) {
    if (one.is_string()) {
      visit(one);
      continue;
    }
    if (!one.is_object())
      throw_error(ErrorCode::kMismatch, "the list of ranks in the store holds something else");
    for (const auto& [key, value] : one.items()) {
      if (value.is_null())
        record.erase(key);
      else
        record[key] = value;
    }
    visit(record);
  }
}

}  // namespace hccl_like

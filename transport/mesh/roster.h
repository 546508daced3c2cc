#pragma once
// All ranks' records as one value of the store, so that a rank fetches them with one request.
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace hccl_like {

// JSON: an array in which each record holds only the fields that differ from the previous record. A
// record that is no JSON object is stored unchanged, so that every rank can report the error.
std::string pack_records(std::span<const std::string> records);
// Calls `visit` with each record in order: a JSON object, or a string if the record is none. The
// value changes after the call. Throws if `text` does not hold `count` records.
void visit_records(std::string_view text, size_t count,
                   const std::function<void(const nlohmann::json& record)>& visit);

}  // namespace hccl_like

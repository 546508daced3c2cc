#pragma once
// All ranks' records as one value of the store, so that a rank fetches them with one request.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/network/process_record.h"

namespace hccl_like {

// JSON: an array in which each record holds only the fields that differ from the previous record. A
// record that is no JSON object is stored unchanged, so that every rank can report the error.
std::string pack_records(std::span<const std::string> records);
// Throws if `text` does not hold `count` records, each at most kLongestRecord long.
std::vector<std::string> unpack_records(std::string_view text, size_t count);

}  // namespace hccl_like

#pragma once
// All ranks' records as one value of the store, which every rank fetches with one request.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/network/process_record.h"

namespace hccl_like {

// JSON: an array in which each record is the fields that differ from the one before, for ranks of
// one host have nearly everything in common. A record that is no JSON object goes as it is, so that
// every rank can say what is wrong.
std::string pack_records(std::span<const std::string> records);
// Throws a sentence if `text` does not hold `count` records, none of them longer than
// kLongestRecord.
std::vector<std::string> unpack_records(std::string_view text, size_t count);

}  // namespace hccl_like

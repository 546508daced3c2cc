#pragma once
// Counters of ranks on other hosts: asked for over a connection that is made for the question.
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "transport/network/process_record.h"

namespace hccl_like {

class Key;
struct LocalEnd;

// The connection index of such questions. Rails have smaller numbers.
inline constexpr size_t kCountersRail = 98;

struct RankRecord {
  int rank;
  ProcessRecord record;
};

struct RankCounters {
  int rank;
  std::string host;
  std::string content;  // CounterFile::compact(); empty: see `problem`
  std::string problem;  // why there are none, one line
};

// Asks each rank over a connection of its own, which both ends authenticate, and waits until the
// deadline at most. Any thread, beside the engine; polls `stop`.
std::vector<RankCounters> counters_of(const LocalEnd& local, const ProcessRecord& self,
                                      const std::vector<RankRecord>& ranks, Deadline deadline,
                                      const std::atomic<bool>& stop);

// The other end: sends the text, whose tag the connection's key makes, without waiting.
void tell_counters(int socket, const Key& session, const std::string& content);

}  // namespace hccl_like

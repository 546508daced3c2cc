#include "transport/mesh_exchange.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "core/error.h"
#include "core/log.h"
#include "transport/bootstrap_random.h"

namespace hccl_like {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kProgressEvery{10'000};
constexpr milliseconds kGlance{1};          // how long to look for one record of many
constexpr milliseconds kGlanceBudget{200};  // for all of them
constexpr int kMostNamed = 32;
constexpr size_t kCommunicatorDigits = 16;

std::string hexadecimal(uint64_t value) {
  std::string text(kCommunicatorDigits, '0');
  for (size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

uint64_t parse_communicator(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + kCommunicatorDigits || value == 0)
    throw_error(
        ErrorCode::kMismatch,
        "rank 0's record in the store is malformed; check that no other program writes there");
  return value;
}

// The records as they come in.
class Collector {
 public:
  Collector(Store& store, std::string prefix, int size)
      : store_(store), prefix_(std::move(prefix)), values_(static_cast<size_t>(size)) {}

  // True once rank's record is here.
  bool collect(int rank, Deadline deadline) {
    std::string& value = values_[static_cast<size_t>(rank)];
    if (!value.empty()) return true;
    try {
      value = store_.get(prefix_ + std::to_string(rank), deadline);
    } catch (const Exception& exception) {
      if (exception.code() != ErrorCode::kTimeout) throw;
    }
    return !value.empty();
  }

  // Looks for everybody without waiting for anybody, and names the missing: "[3,7]".
  std::string missing() {
    const Deadline budget = Deadline::after(kGlanceBudget);
    std::string names;
    int count = 0;
    for (int rank = 0; rank < static_cast<int>(values_.size()); ++rank) {
      if (!values_[static_cast<size_t>(rank)].empty()) continue;
      if (!budget.expired() && collect(rank, Deadline::after(kGlance))) continue;
      if (++count > kMostNamed) continue;
      names += (names.empty() ? "" : ",") + std::to_string(rank);
    }
    if (count == 0) return "";
    return "[" + names +
           (count > kMostNamed ? ",... " + std::to_string(count - kMostNamed) + " more]" : "]");
  }

  const std::string& value(int rank) const { return values_[static_cast<size_t>(rank)]; }

 private:
  Store& store_;
  const std::string prefix_;
  std::vector<std::string> values_;
};

void collect_all(Collector& records, int size, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  Deadline progress = Deadline::after(kProgressEvery);
  for (int rank = 0; rank < size; ++rank) {
    while (!records.collect(rank, earliest(deadline, progress))) {
      const auto seconds =
          std::chrono::duration_cast<std::chrono::seconds>(Deadline::Clock::now() - start).count();
      const bool over = deadline.expired();
      const std::string missing = over || progress.expired() ? records.missing() : "";
      if (over && !missing.empty())
        throw_error(ErrorCode::kTimeout,
                    "timed out after " + std::to_string(seconds) + " s waiting for ranks " +
                        missing + " of " + std::to_string(size) +
                        " to join the group; check that they were started and use the same store");
      if (!progress.expired()) continue;
      log_info("waiting for ranks " + missing + ", " + std::to_string(seconds) + " s");
      progress = Deadline::after(kProgressEvery);
    }
  }
}

}  // namespace

Roster exchange_records(Store& store, const ProcessRecord& self, const std::string& attempt,
                        int rank, int size, Deadline deadline) {
  if (size < 1 || rank < 0 || rank >= size)
    throw_misuse("rank " + std::to_string(rank) + " is not in 0.." + std::to_string(size - 1));
  const std::string prefix = "hccl_like/" + attempt + "/" + std::to_string(size) + "/";
  const int64_t generation = (store.add(prefix + "arrivals", 1) - 1) / size;
  const std::string below = prefix + std::to_string(generation) + "/";
  store.set(below + std::to_string(rank),
            (rank == 0 ? hexadecimal(random_u64()) : "") + self.serialize());

  Collector records(store, below, size);
  collect_all(records, size, deadline);

  Roster roster;
  for (int member = 0; member < size; ++member) {
    std::string_view text = records.value(member);
    if (member == 0) {
      roster.communicator = parse_communicator(text.substr(0, kCommunicatorDigits));
      text.remove_prefix(kCommunicatorDigits);
    }
    roster.members.push_back(ProcessRecord::parse(text));
  }
  return roster;
}

}  // namespace hccl_like

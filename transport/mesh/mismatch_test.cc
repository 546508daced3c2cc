// Ranks that cannot be one job because they are set up differently: all of them say who and what.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "transport/bootstrap/greeting.h"
#include "transport/mesh/exchange.h"
#include "transport/security/identity.h"
#include "transport/testing/local_store.h"
#include "transport/testing/record_of.h"

namespace hccl_like {
namespace {

std::string protocol(uint32_t version) { return "\"protocol\":" + std::to_string(version); }

// The store as a process of the next version sees it: exchanges the protocol versions in all texts
// that it writes and reads.
class NextVersion final : public Store {
 public:
  explicit NextVersion(Store& store) : store_(store) {}
  void set(const std::string& key, const std::string& value) override {
    store_.set(key, exchanged(value));
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return exchanged(store_.get(key, deadline));
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_.add(key, amount); }

 private:
  // Ours for theirs, and the reverse: to a rank its own version is the right one.
  static std::string exchanged(std::string text) {
    const std::string ours = protocol(kProtocolVersion), theirs = protocol(kProtocolVersion + 1);
    for (size_t at = text.find("\"protocol\":"); at != std::string::npos;
         at = text.find("\"protocol\":", at + 1))
      text.replace(at, ours.size(), text.compare(at, ours.size(), ours) == 0 ? theirs : ours);
    return text;
  }
  Store& store_;
};

// The error messages of three ranks.
std::vector<std::string> refusals(const std::function<ProcessRecord(int)>& record, bool next) {
  LocalStore store;
  NextVersion other(store);
  std::vector<std::string> texts(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      Store& mine = next && rank == 1 ? static_cast<Store&>(other) : store;
      try {
        exchange_records(mine, JobKey(), record(rank), rank, 3,
                         Deadline::after(std::chrono::seconds(20)));
      } catch (const Exception& exception) {
        EXPECT_EQ(exception.code(), ErrorCode::kMismatch);
        texts[static_cast<size_t>(rank)] = exception.error().message;
      }
    });
  for (std::thread& rank : ranks) rank.join();
  return texts;
}

TEST(Mismatch, OfVersionsIsToldByAllRanks) {
  const auto texts = refusals(record_of, true);
  const std::string ours = std::to_string(kProtocolVersion);
  const std::string theirs = std::to_string(kProtocolVersion + 1);
  const std::string advice = " of the protocol and this rank version ";
  const std::string what = ": install the same release of hccl-like on all hosts";
  EXPECT_EQ(
      texts[0],
      "rank 0 (host0, process 100) cannot join rank 1 (host1, process 101): it speaks version " +
          theirs + advice + ours + what);
  // To itself, it is the others who are one version ahead.
  EXPECT_EQ(
      texts[1],
      "rank 1 (host1, process 101) cannot join rank 0 (host0, process 100): it speaks version " +
          theirs + advice + ours + what);
  EXPECT_EQ(
      texts[2],
      "rank 2 (host2, process 102) cannot join rank 1 (host1, process 101): it speaks version " +
          theirs + advice + ours + what);
}

TEST(Mismatch, OfSettingsIsToldByAllRanksAlike) {
  const auto texts = refusals(
      [](int rank) {
        ProcessRecord record = record_of(rank);
        if (rank == 2) record.settings["HCCL_LIKE_CONNECT"] = "eager";
        return record;
      },
      false);
  for (const std::string& text : texts)
    EXPECT_EQ(text,
              "HCCL_LIKE_CONNECT is not set on rank 0 (host0, process 100) and eager on rank 2 "
              "(host2, process 102); set it alike on all ranks");
}

}  // namespace
}  // namespace hccl_like

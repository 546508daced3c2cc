#include "transport/mesh/roster.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "transport/mesh/mesh.h"

namespace hccl_like {
namespace {

// Each as the text that was packed.
std::vector<std::string> unpack_records(std::string_view text, size_t count) {
  std::vector<std::string> records;
  visit_records(text, count, [&](const nlohmann::json& record) {
    records.push_back(record.is_string() ? record.get<std::string>() : record.dump());
  });
  return records;
}

TEST(Roster, ComesOutAsItWentIn) {
  const std::vector<std::string> records{
      R"({"a":1,"host":"x","list":[1,2],"object":{"p":1,"q":2}})",
      R"({"a":2,"host":"x","list":[1,2],"object":{"p":1}})",
      "no JSON at all",
      R"({"b":3,"host":"y"})",
  };
  EXPECT_EQ(unpack_records(pack_records(records), 4), records);
}

TEST(Roster, LocalPeersCostLittle) {
  ProcessRecord record{.id = std::string(32, 'a'),
                       .nonce = std::string(64, 'b'),
                       .host = std::string(80, 'c'),
                       .hostname = "node-0001",
                       .pid = 12345,
                       .unix_name = "hccl-like-0123456789",
                       .addresses = {"10.0.0.5", "fd00::5"},
                       .port = 40000};
  std::vector<std::string> records;
  for (int rank = 0; rank < 64; ++rank) {
    record.pid += 1, record.port += 1;
    record.id[0] = static_cast<char>('a' + rank % 6), record.nonce[1] = record.id[0];
    records.push_back(record.serialize());
  }
  EXPECT_LT(pack_records(records).size(), 64 * 190u);
  EXPECT_GT(records[0].size(), 300u);
}

TEST(Roster, RefusesWhatIsNone) {
  EXPECT_THROW(unpack_records("", 1), Exception);
  EXPECT_THROW(unpack_records("[]", 1), Exception);
  EXPECT_THROW(unpack_records("[3]", 1), Exception);
  EXPECT_THROW(unpack_records("{}", 0), Exception);
}

// Writing, copying and comparing what is nested takes the stack.
TEST(Roster, RefusesWhatIsNestedDeeply) {
  constexpr size_t kDepth = 400'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  EXPECT_THROW(unpack_records("[{\"a\":" + deep + "}]", 1), Exception);
  const std::vector<std::string> records{"{\"a\":" + deep + "}", "{\"a\":" + deep + "}"};
  EXPECT_EQ(unpack_records(pack_records(records), 2), records) << "as texts, which are refused";
  EXPECT_THROW(ProcessRecord::parse(records[0]), Exception);
}

TEST(ProcessRecord, CarriesSettingsAndTheMachine) {
  ProcessRecord record{.id = std::string(32, 'a'), .nonce = std::string(64, 'b')};
  record.settings = {{"HCCL_LIKE_ALGO", "allreduce:ring"}};
  record.machine = Machine{.sockets = 2,
                           .nodes = 4,
                           .cores = 64,
                           .threads = 128,
                           .nics = {{"ib0", "0000:3b:00.0", 1, 200000}}};
  const ProcessRecord read = ProcessRecord::parse(record.serialize());
  EXPECT_EQ(read.settings, record.settings);
  EXPECT_EQ(read.machine, record.machine);
}

}  // namespace
}  // namespace hccl_like

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "core/base/error.h"
#include "transport/mesh/mesh.h"
#include "transport/security/identity.h"
#include "transport/testing/mesh_rank.h"

namespace hccl_like {
namespace {

TEST(ProcessRecord, SurvivesTheWayThroughTheStore) {
  MeshRank self(config_with({"shm", "tcp"}));
  ProcessRecord record = self.mesh.self();
  record.device = "sim with a plugin";
  const ProcessRecord copy = ProcessRecord::parse(record.serialize());
  EXPECT_EQ(copy.serialize(), record.serialize());
  EXPECT_EQ(copy.addresses, record.addresses);
  EXPECT_EQ(copy.port, record.port);
  EXPECT_EQ(copy.nonce, record.nonce);
  EXPECT_EQ(copy.pid, ::getpid());
  EXPECT_EQ(copy.device, record.device);
}

TEST(ProcessRecord, RefusesWhatIsMalformed) {
  MeshRank self(config_with({"tcp"}));
  const std::string good = self.mesh.self().serialize();
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string port = "\"port\":" + std::to_string(self.mesh.self().port);
  EXPECT_NO_THROW(ProcessRecord::parse(good));
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("null"), std::string(1 << 20, '['),
        good.substr(0, good.size() / 2), with("\"id\":\"", "\"id\":\"x"),
        with("\"nonce\":\"", "\"nonce\":\"00"), with("\"addresses\":", "\"a\":"),
        with(port, "\"port\":65536"), with(port, "\"port\":-1"), with(port, "\"port\":\"x\""),
        with("\"protocol\":" + std::to_string(kProtocolVersion), "\"protocol\":99"),
        with("\"hostname\":\"", "\"hostname\":\"" + std::string(300, 'h')),
        with("\"hostname\"",
             "\"settings\":{\"a\":\"" + std::string(kLongestRecord, 's') + "\"},\"hostname\"")})
    EXPECT_THROW(ProcessRecord::parse(bad), Exception) << bad.substr(0, 100);
}

}  // namespace
}  // namespace hccl_like

#include "collectives/selection/profile.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hccl_like {
namespace {

using enum Collective;

constexpr const char* kText = R"({"hccl_like_profile": 1, "layouts": {
  "2x2": {"allreduce": [[65536, "rails_direct"], [8, "leaders_one_shot"], [1048576, "ring"]]},
  "0,0,1": {"allgather": [[1024, "bruck"]], "reduce_scatter": [[8, "recursive_halving"]]}}})";

std::string_view found(Collective collective, const Hosts& hosts, uint64_t bytes) {
  const Algorithm* algorithm = Profile::parse(kText, "it").find(collective, hosts, bytes);
  return algorithm == nullptr ? "none" : algorithm->name;
}

std::string complaint(const char* text) {
  try {
    Profile::parse(text, "/etc/profile.json");
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.code(), ErrorCode::kMisuse);
    return exception.error().message;
  }
  return "";
}

TEST(Profile, GivesWhatWasBestAtTheNearestSize) {
  const Hosts hosts = Hosts::even(2, 2);
  EXPECT_EQ(found(kAllReduce, hosts, 0), "leaders_one_shot");
  EXPECT_EQ(found(kAllReduce, hosts, 8), "leaders_one_shot");
  EXPECT_EQ(found(kAllReduce, hosts, 724), "leaders_one_shot");  // sqrt(8 * 65536) = 724.07...
  EXPECT_EQ(found(kAllReduce, hosts, 725), "rails_direct");
  EXPECT_EQ(found(kAllReduce, hosts, 262144), "rails_direct");
  EXPECT_EQ(found(kAllReduce, hosts, 262145), "ring");
  EXPECT_EQ(found(kAllReduce, hosts, uint64_t{1} << 40), "ring");
}

TEST(Profile, KnowsOnlyWhatWasMeasured) {
  EXPECT_EQ(found(kAllReduce, Hosts::even(2, 3), 8), "none");
  EXPECT_EQ(found(kAllReduce, Hosts::of(std::vector{0, 1, 0, 1}), 8), "none");
  EXPECT_EQ(found(kBroadcast, Hosts::even(2, 2), 8), "none");
  EXPECT_EQ(found(kAllGather, Hosts::of(std::vector{4, 4, 2}), 8), "bruck");
  EXPECT_EQ(found(kReduceScatter, Hosts::of(std::vector{4, 4, 2}), 8), "none");  // powers of two
  EXPECT_EQ(Profile().find(kAllReduce, 2, 8), nullptr);
}

TEST(Profile, RefusesWhatIsNone) {
  EXPECT_EQ(
      complaint("{"),
      "/etc/profile.json is no profile that this version can use: it is no JSON object; write it "
      "anew with hccl-like tune");
  EXPECT_NE(complaint(R"({"layouts": {}})").find("version 1"), std::string::npos);
  EXPECT_NE(
      complaint(R"({"hccl_like_profile": 1, "layouts": {"2x2": {"all_reduce": [[8, "quantum"]]}}})")
          .find("there is no all_reduce algorithm \"quantum\""),
      std::string::npos);
  EXPECT_NE(
      complaint(R"({"hccl_like_profile": 1, "layouts": {"2x2": {"allreduce": [[-8, "ring"]]}}})")
          .find("no pair of bytes and algorithm"),
      std::string::npos);
  EXPECT_NE(
      complaint(R"({"hccl_like_profile": 1, "layouts": {"2x2": {"nothing": []}}})").find("nothing"),
      std::string::npos);
}

}  // namespace
}  // namespace hccl_like

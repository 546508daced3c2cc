#include "core/settings/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace hccl_like {
namespace {

ParsedConfig parse(std::vector<std::string> variables) {
  std::vector<const char*> pointers;
  for (const std::string& variable : variables) pointers.push_back(variable.c_str());
  return parse_config(pointers);
}

std::string complaint(const std::string& variable) {
  try {
    parse({variable});
  } catch (const Exception& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMisuse);
    return e.what();
  }
  return "no complaint";
}

TEST(Config, DocumentsTheDefaultOfEverySetting) {
  for (const Setting& setting : Config::settings()) {
    const ParsedConfig parsed =
        parse({std::string(setting.name) + "=" + std::string(setting.default_value)});
    EXPECT_EQ(parsed.config, Config()) << setting.name;
    EXPECT_TRUE(parsed.warnings.empty()) << setting.name;
    EXPECT_TRUE(setting.name.starts_with("HCCL_LIKE_")) << setting.name;
    EXPECT_TRUE(setting.help.ends_with('.')) << setting.name;
  }
}

TEST(Config, ReadsEveryKindOfValue) {
  const Config config =
      parse({"PATH=/bin", "HCCL_LIKE_DEBUG=TRACE", "HCCL_LIKE_DEBUG_FILE=/tmp/%h.%p",
             "HCCL_LIKE_SOCKET_IFNAME=^docker,lo", "HCCL_LIKE_PORT_RANGE=4000-4010",
             "HCCL_LIKE_TRANSPORTS=tcp", "HCCL_LIKE_CONNECT_TIMEOUT_MS=1500",
             "HCCL_LIKE_ALGO=all_reduce:ring", "HCCL_LIKE_SLICE_BYTES=64K",
             "HCCL_LIKE_SLICE_WINDOW=2", "HCCL_LIKE_SPINS=0", "HCCL_LIKE_YIELDS=7",
             "HCCL_LIKE_THREADS=3"})
          .config;
  EXPECT_EQ(config.debug, LogLevel::kTrace);
  EXPECT_EQ(config.debug_file, "/tmp/%h.%p");
  EXPECT_FALSE(config.socket_ifname.matches("docker0"));
  EXPECT_EQ(config.port_range, (PortRange{4000, 4010}));
  EXPECT_EQ(config.transports, std::vector<std::string>{"tcp"});
  EXPECT_EQ(config.connect_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(config.algo.find("all_reduce"), "ring");
  EXPECT_EQ(config.slice_bytes, 65536u);
  EXPECT_EQ(config.slice_window, 2u);
  EXPECT_EQ(config.spins, 0u);
  EXPECT_EQ(config.yields, 7u);
  EXPECT_EQ(config.threads, 3u);
}

TEST(Config, NamesTheVariableThatIsWrong) {
  EXPECT_EQ(complaint("HCCL_LIKE_DEBUG=debug"),
            "HCCL_LIKE_DEBUG: 'debug' is not a level; write WARN, INFO or TRACE");
  EXPECT_EQ(complaint("HCCL_LIKE_SLICE_BYTES=1Q"),
            "HCCL_LIKE_SLICE_BYTES: '1Q' is not a size; write bytes, or a number with K, M or G, "
            "e.g. 64K");
  EXPECT_EQ(complaint("HCCL_LIKE_TRANSPORTS="),
            "HCCL_LIKE_TRANSPORTS: the list is empty; name at least one");
  EXPECT_EQ(complaint("HCCL_LIKE_SPINS=-1"),
            "HCCL_LIKE_SPINS: '-1' is not a number from 0 to 4294967295");
}

TEST(Config, SuggestsTheNearestName) {
  const ParsedConfig parsed =
      parse({"HCCL_LIKE_SOCKET_IFNAMES=eth0", "HCCL_SOCKET_IFNAME=eth0", "HCCL_LIKE_YEILDS=1"});
  EXPECT_EQ(parsed.config, Config());
  EXPECT_EQ(
      parsed.warnings,
      (std::vector<std::string>{
          "there is no setting HCCL_LIKE_SOCKET_IFNAMES; did you mean HCCL_LIKE_SOCKET_IFNAME",
          "there is no setting HCCL_LIKE_YEILDS; did you mean HCCL_LIKE_YIELDS"}));
}

TEST(Config, ReadsTheEnvironmentAndWarnsOnce) {
  ::setenv("HCCL_LIKE_YIELDS", "11", 1);
  ::setenv("HCCL_LIKE_DEBUGG", "WARN", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Config::from_environment().yields, 11u);
  EXPECT_EQ(Config::from_environment().yields, 11u);
  const std::string written = ::testing::internal::GetCapturedStderr();
  ::unsetenv("HCCL_LIKE_YIELDS");
  ::unsetenv("HCCL_LIKE_DEBUGG");
  const std::string warning =
      "there is no setting HCCL_LIKE_DEBUGG; did you mean HCCL_LIKE_DEBUG\n";
  const size_t first = written.find(warning);
  ASSERT_NE(first, std::string::npos) << written;
  EXPECT_EQ(written.find(warning, first + 1), std::string::npos) << written;
}

TEST(Config, PrintsATableThatMarksWhatDiffers) {
  Config config;
  config.spins = 3;
  const std::string table = config.to_string();
  EXPECT_TRUE(std::regex_search(table, std::regex("\n\\* HCCL_LIKE_SPINS += 3\n"))) << table;
  EXPECT_TRUE(std::regex_search(table, std::regex("\n  HCCL_LIKE_TRANSPORTS += shm,tcp\n")))
      << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'),
            static_cast<long>(Config::settings().size()));
}

}  // namespace
}  // namespace hccl_like

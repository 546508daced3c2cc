#include "core/base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "core/base/error.h"

namespace hccl_like {
namespace {

class Log : public ::testing::Test {
 protected:
  void SetUp() override { std::remove(path().c_str()); }
  void TearDown() override {
    set_log_rank(-1);
    configure_log(LogLevel::kWarn);
    std::remove(path().c_str());
  }

  static std::string pid() { return std::to_string(::getpid()); }
  static std::string host() {
    char buffer[256] = {};
    ::gethostname(buffer, sizeof(buffer) - 1);
    return buffer;
  }
  std::string pattern() const { return ::testing::TempDir() + "hccl_like_log_test.%h.%p.log"; }
  std::string path() const {
    return ::testing::TempDir() + "hccl_like_log_test." + host() + "." + pid() + ".log";
  }
  std::string content() const {
    std::ifstream file(path());
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

TEST_F(Log, WritesHostPidRankAndLevel) {
  configure_log(LogLevel::kInfo, pattern());
  log_info("before the rank is known");
  set_log_rank(5);
  log_warn("100 % {} safe");
  EXPECT_EQ(content(), host() + ":" + pid() + " hccl-like INFO before the rank is known\n" +
                           host() + ":" + pid() + " [5] hccl-like WARN 100 % {} safe\n");
}

TEST_F(Log, LeavesOutWhatIsBelowTheLevel) {
  configure_log(LogLevel::kWarn, pattern());
  log_info("quiet");
  log_trace("quieter");
  bool asked = false;
  log_info([&] {
    asked = true;
    return std::string("never built");
  });
  EXPECT_FALSE(asked);
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  EXPECT_TRUE(log_enabled(LogLevel::kWarn));
  EXPECT_EQ(content(), "");
}

TEST_F(Log, BuildsTheMessageWhenActive) {
  configure_log(LogLevel::kTrace, pattern());
  log_trace([] { return std::string("built"); });
  EXPECT_EQ(content(), host() + ":" + pid() + " hccl-like TRACE built\n");
}

TEST_F(Log, SaysThatTheFileCannotBeOpened) {
  try {
    configure_log(LogLevel::kWarn, "/proc/no/such/file");
    FAIL() << "a file below /proc must not open";
  } catch (const Exception& e) {
    EXPECT_NE(std::string(e.what()).find(
                  "cannot open the log file /proc/no/such/file (HCCL_LIKE_DEBUG_FILE)"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace hccl_like

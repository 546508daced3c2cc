#include "core/base/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/settings/config.h"

namespace hccl_like {
namespace {

const std::string kText(64, 'k');

class SecretFile : public testing::Test {
 protected:
  ~SecretFile() override { std::filesystem::remove_all(folder); }
  std::string write(const std::string& text, mode_t mode) const {
    const std::string path = folder / "secret";
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string refusal(const std::string& path) {
    try {
      Secret::read_file(path);
    } catch (const Exception& exception) {
      EXPECT_EQ(exception.code(), ErrorCode::kMisuse);
      return exception.error().message;
    }
    return "";
  }
  const std::filesystem::path folder = [] {
    char name[] = "/tmp/hccl-like-secret-XXXXXX";
    return std::filesystem::path(::mkdtemp(name));
  }();
};

TEST_F(SecretFile, IsReadWithoutTheEndOfItsLine) {
  EXPECT_EQ(Secret::read_file(write(kText + "\n", 0600)).text(), kText);
  EXPECT_EQ(Secret::read_file(write(kText + " \r\n\n", 0400)).text(), kText);
}

TEST_F(SecretFile, IsRefusedIfOthersMayReadItWithTheCommandThatMendsIt) {
  for (const mode_t mode : {0640, 0604, 0660, 0644, 0610}) {
    const std::string path = write(kText, mode);
    EXPECT_EQ(refusal(path),
              "HCCL_LIKE_SECRET_FILE=" + path +
                  " cannot be used: others than its owner may read or write it; run: "
                  "chmod 600 " +
                  path);
  }
}

TEST_F(SecretFile, IsRefusedIfItBelongsToSomebodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string path = write(kText, 0600);
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal(path).find("it belongs to user 12345"), std::string::npos);
}

TEST_F(SecretFile, IsRefusedIfThereIsNoneInIt) {
  EXPECT_NE(refusal(write("", 0600)).find("it is empty"), std::string::npos);
  EXPECT_NE(refusal(write("short\n", 0600)).find("at least 32"), std::string::npos);
  EXPECT_NE(refusal(write(std::string(5000, 'x'), 0600)).find("at most 4096"), std::string::npos);
  EXPECT_NE(refusal(folder / "none").find("No such file"), std::string::npos);
  EXPECT_NE(refusal(folder).find("no regular file"), std::string::npos);
}

TEST(Secret, IsNeverShown) {
  const std::string variable = "HCCL_LIKE_SECRET=" + kText;
  const char* const environment[] = {variable.c_str()};
  const Config config = parse_config(environment).config;
  EXPECT_EQ(config.secret.text(), kText);
  EXPECT_EQ(config.to_string().find(kText), std::string::npos);
  EXPECT_NE(config.to_string().find("(set)"), std::string::npos);
  EXPECT_TRUE(config.common().empty());
}

TEST(Secret, ThatIsTooShortIsRefusedWithoutBeingQuoted) {
  const char* const environment[] = {"HCCL_LIKE_SECRET=hush-hush"};
  try {
    parse_config(environment);
    FAIL();
  } catch (const Exception& exception) {
    EXPECT_EQ(std::string(exception.what()).find("hush"), std::string::npos);
    EXPECT_NE(std::string(exception.what()).find("at least 32"), std::string::npos);
  }
}

}  // namespace
}  // namespace hccl_like

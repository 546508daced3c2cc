#include "core/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <sstream>

namespace hccl_like {
namespace {

TEST(Error, PrintsItsCodeAndPeer) {
  EXPECT_EQ(to_string(Error{ErrorCode::kTimeout, "nobody came", -1}), "timeout: nobody came");
  std::ostringstream out;
  out << Error{ErrorCode::kPeerLost, "the connection was closed", 3};
  EXPECT_EQ(out.str(), "peer lost (rank 3): the connection was closed");
  EXPECT_EQ(to_string(Error{ErrorCode::kMismatch, "ranks 0 and 1 differ", 1}),
            "mismatch: ranks 0 and 1 differ");
}

TEST(Error, OfAnotherRankIsNamedByWhatBefellThatOne) {
  EXPECT_EQ(to_string(Error{.code = ErrorCode::kAborted,
                            .message = "rank 0 waited",
                            .peer = 0,
                            .told = ErrorCode::kTimeout}),
            "timeout: rank 0 waited");
  EXPECT_EQ(to_string(Error{.code = ErrorCode::kAborted,
                            .message = "rank 0 lost rank 2",
                            .peer = 2,
                            .told = ErrorCode::kPeerLost}),
            "peer lost (rank 2): rank 0 lost rank 2");
}

TEST(Error, HasANameForEveryCode) {
  EXPECT_EQ(name(ErrorCode::kMisuse), "misuse");
  EXPECT_EQ(name(ErrorCode::kPeerLost), "peer lost");
  EXPECT_EQ(name(ErrorCode::kAborted), "aborted");
  EXPECT_EQ(name(ErrorCode::kMismatch), "mismatch");
  EXPECT_EQ(name(ErrorCode::kSystem), "system");
  EXPECT_EQ(name(ErrorCode::kDevice), "device");
  EXPECT_EQ(name(ErrorCode::kUnsupported), "unsupported");
  EXPECT_EQ(name(ErrorCode::kNan), "NaN");
}

TEST(Error, FindsTheCodeThatATextBeginsWith) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kNan); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(code_in(to_string(Error{code, "why", -1})), code);
    EXPECT_EQ(code_in(to_string(Error{code, "why", 7})), code);
  }
  for (const char* text :
       {"", "timeout", "timeouts: why", "a timeout: why", "peer: lost", " misuse: x"})
    EXPECT_EQ(code_in(text), std::nullopt) << text;
}

TEST(Error, HasANumberThatTellsWhoSawIt) {
  EXPECT_EQ(number(Error{.code = ErrorCode::kMisuse}), 101);
  EXPECT_EQ(number(Error{.code = ErrorCode::kUnsupported}), 102);
  EXPECT_EQ(number(Error{.code = ErrorCode::kTimeout}), 201);
  EXPECT_EQ(number(Error{.code = ErrorCode::kAborted}), 401);
  EXPECT_EQ(number(Error{.code = ErrorCode::kNan}), 801);
  const auto told = [](ErrorCode what) {
    return number(Error{.code = ErrorCode::kAborted, .peer = 1, .told = what});
  };
  EXPECT_EQ(told(ErrorCode::kTimeout), 202);
  EXPECT_EQ(told(ErrorCode::kPeerLost), 302);
  EXPECT_EQ(told(ErrorCode::kAborted), 402);
  EXPECT_EQ(told(ErrorCode::kMisuse), 402);
  EXPECT_EQ(number(Error{.code = ErrorCode::kTimeout, .number = 203}), 203);
}

TEST(Error, ThrowSystemAppendsErrno) {
  errno = ECONNREFUSED;
  try {
    throw_system("cannot connect to 10.0.0.1:4000");
  } catch (const Exception& e) {
    EXPECT_EQ(e.code(), ErrorCode::kSystem);
    EXPECT_STREQ(e.what(),
                 "system: cannot connect to 10.0.0.1:4000: Connection refused (errno 111)");
    return;
  }
}

TEST(Error, AMisuseIsToldWithoutPrefix) {
  try {
    throw_misuse("pass a tensor of 4 elements");
  } catch (const Exception& e) {
    EXPECT_STREQ(e.what(), "pass a tensor of 4 elements");
    EXPECT_EQ(e.error(), (Error{ErrorCode::kMisuse, "pass a tensor of 4 elements", -1}));
    return;
  }
}

}  // namespace
}  // namespace hccl_like

#include "core/base/own_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace hccl_like {
namespace {

TEST(OwnThread, RunsItsWorkAndTakesNoSignals) {
  std::atomic<int> blocked{-1};
  own_thread("asks", [&] {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = ::sigismember(&mask, SIGTERM);
  }).join();
  EXPECT_EQ(blocked, 1);
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGTERM), 0) << "the caller's are as they were";
}

TEST(OwnThread, WhatIsThrownInItIsToldAndEndsNothingElse) {
  testing::internal::CaptureStderr();
  own_thread("throws", [] { throw std::runtime_error("enough"); }).join();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the thread that throws has ended: enough"),
            std::string::npos);
}

}  // namespace
}  // namespace hccl_like

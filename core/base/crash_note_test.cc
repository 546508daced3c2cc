#include "core/base/crash_note.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

// An address that nothing is at, which the compiler must not know.
constexpr uintptr_t kNowhere = 0x10;
volatile uintptr_t nowhere = kNowhere;
void crash() { *reinterpret_cast<volatile int*>(nowhere) = 1; }

// A handler as others install them: it tells the address, and leaves the rest to what was there
// before.
struct sigaction before_others {};
void others_handler(int number, siginfo_t* info, void*) {
  const char* const told = reinterpret_cast<uintptr_t>(info->si_addr) == kNowhere
                               ? "others: the address\n"
                               : "others: another address\n";
  (void)!::write(STDERR_FILENO, told, std::strlen(told));
  ::sigaction(number, &before_others, nullptr);
}
void install_others() {
  struct sigaction action {};
  action.sa_sigaction = others_handler;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &before_others);
}

// In the child: without what a sanitizer does about these signals.
void as_in_an_ordinary_process() {
  std::signal(SIGSEGV, SIG_DFL);
  std::signal(SIGABRT, SIG_DFL);
}

TEST(CrashNoteDeathTest, SaysWhoseFaultACrashIs) {
  EXPECT_EXIT(
      {
        as_in_an_ordinary_process();
        const CrashNote note("it was them\n");
        crash();
      },
      ::testing::KilledBySignal(SIGSEGV), "^it was them\n$");
  EXPECT_EXIT(
      {
        as_in_an_ordinary_process();
        const CrashNote note("it was them\n");
        std::abort();
      },
      ::testing::KilledBySignal(SIGABRT), "^it was them\n$");
}

TEST(CrashNoteDeathTest, SaysNothingOnceItIsGone) {
  EXPECT_EXIT(
      {
        as_in_an_ordinary_process();
        { const CrashNote note("it was them\n"); }
        crash();
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

TEST(CrashNoteDeathTest, TheHandlerBeforeLearnsTheAddress) {
  EXPECT_EXIT(
      {
        as_in_an_ordinary_process();
        install_others();
        const CrashNote note("it was them\n");
        crash();
      },
      ::testing::KilledBySignal(SIGSEGV), "^it was them\nothers: the address\n$");
}

TEST(CrashNoteDeathTest, AHandlerThatForeignCodeInstallsStays) {
  EXPECT_EXIT(
      {
        as_in_an_ordinary_process();
        {
          const CrashNote note("it was them\n");
          install_others();
        }
        crash();
      },
      ::testing::KilledBySignal(SIGSEGV), "^others: the address\n$");
  EXPECT_EXIT(
      {
        as_in_an_ordinary_process();
        const CrashNote note("it was them\n");
        install_others();
        crash();
      },
      ::testing::KilledBySignal(SIGSEGV), "^others: the address\nit was them\n$");
}

TEST(CrashNoteDeathTest, ALaterNoteIsCalledBelowAHandlerThatStayed) {
  EXPECT_EXIT(
      {
        as_in_an_ordinary_process();
        {
          const CrashNote note("it was them\n");
          install_others();
        }
        const CrashNote note("it was the others\n");
        crash();
      },
      ::testing::KilledBySignal(SIGSEGV), "^others: the address\nit was the others\n$");
}

TEST(CrashNoteDeathTest, LeavesTheHandlersAsTheyWere) {
  EXPECT_EXIT(
      {
        as_in_an_ordinary_process();
        install_others();
        { const CrashNote note("it was them\n"); }
        { const CrashNote note("it was them\n"); }
        crash();
      },
      ::testing::KilledBySignal(SIGSEGV), "^others: the address\n$");
}

}  // namespace
}  // namespace hccl_like

#include "device/host/host_ipc.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "device/host/host_api.h"
#include "device/host/shared_memory.h"
#include "device/host/shared_pool.h"

namespace hccl_like {
namespace {

constexpr size_t kFile = 3 * 4096;

class HostIpc : public ::testing::Test {
 protected:
  HostIpc() : file_(::memfd_create("host-ipc-test", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), kFile), 0);
  }

  // In a process of its own, which must find what `check` looks for.
  static void expect_in_a_child(const std::function<bool()>& check) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(check() ? 0 : 1);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  Device device_{host_api()};
  Fd file_;
};

TEST_F(HostIpc, AnotherProcessReadsAndWrites) {
  auto* const data = static_cast<std::byte*>(SharedPool::of_process().allocate(10'001));
  std::memset(data, 7, 10'001);
  const ExportedRange range = device_.export_range(0, {data, 1000}, 9001).value();
  expect_in_a_child([&] {
    const ImportedRange there = device_.import_range(0, range.handle).value();
    std::byte* const seen = there.data() + range.offset;
    const bool right = seen[0] == std::byte{7} && seen[9000] == std::byte{7};
    seen[9000] = std::byte{8};
    return right;
  });
  EXPECT_EQ(data[9999], std::byte{7});
  EXPECT_EQ(data[10'000], std::byte{8});
  SharedPool::of_process().free(data);
}

TEST_F(HostIpc, OrdinaryMemoryIsNotExported) {
  const std::vector<std::byte> ordinary(100'000);
  EXPECT_FALSE(shared_range(ordinary.data(), ordinary.size()));
  const SharedMemory low = SharedMemory::create(100), high = SharedMemory::create(100);
  std::byte near{};
  EXPECT_FALSE(shared_range(&near, 1));
  EXPECT_FALSE(shared_range(ordinary.data(), ordinary.size()));
  const auto range = device_.export_range(0, {&near, 0}, 1);
  ASSERT_FALSE(range.ok());
  EXPECT_EQ(range.error().code, ErrorCode::kUnsupported);
}

TEST_F(HostIpc, OnlyWhatLiesInsideIsExported) {
  const SharedMemory memory = SharedMemory::create(kFile);
  EXPECT_TRUE(shared_range(memory.data(), kFile));
  EXPECT_TRUE(shared_range(memory.data() + kFile - 1, 1));
  EXPECT_FALSE(shared_range(memory.data() + 1, kFile));
  EXPECT_FALSE(shared_range(memory.data() - 1, 2));
  EXPECT_FALSE(shared_range(memory.data(), SIZE_MAX));
}

TEST_F(HostIpc, MemoryIsForgottenWhenItGoes) {
  SharedMemory memory = SharedMemory::create(kFile);
  SharedMemory moved = std::move(memory);
  const std::byte* const at = moved.data();
  EXPECT_TRUE(shared_range(at, kFile));
  const ExportedRange old = *shared_range(at, 1);
  moved = SharedMemory();
  EXPECT_FALSE(shared_range(at, 1));
  EXPECT_FALSE(device_.import_range(0, old.handle).ok());
}

TEST_F(HostIpc, HandlesDifferEvenWhereAddressAndDescriptorDoNot) {
  hcd_ipc_handle first, second;
  {
    const SharedMemory memory = SharedMemory::create(kFile);
    first = shared_range(memory.data(), 1)->handle;
  }
  const SharedMemory memory = SharedMemory::create(kFile);
  second = shared_range(memory.data(), 1)->handle;
  EXPECT_NE(std::memcmp(first.bytes, second.bytes, sizeof first.bytes), 0);
  EXPECT_FALSE(device_.import_range(0, first).ok());
  EXPECT_TRUE(device_.import_range(0, second).ok());
}

TEST_F(HostIpc, AFileThatSomebodyElseMappedIsOpenedByItsDescriptor) {
  ASSERT_EQ(::pwrite(file_.get(), "hello", 5, 5000), 5);
  const auto token = SharedFileToken::of(file_.get());
  ASSERT_TRUE(token);
  expect_in_a_child([&] {
    const ImportedRange there = device_.import_range(0, handle_of(*token)).value();
    std::memcpy(there.data() + 5000, "j", 1);
    return there.size() == kFile && std::memcmp(there.data() + 5001, "ello", 4) == 0;
  });
  char seen[6] = {};
  ASSERT_EQ(::pread(file_.get(), seen, 5, 5000), 5);
  EXPECT_STREQ(seen, "jello");
}

TEST_F(HostIpc, ADescriptorThatIsAnotherFileByNowIsRefused) {
  const auto token = SharedFileToken::of(file_.get());
  const Fd other(::memfd_create("another", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(other.get(), kFile), 0);
  ASSERT_EQ(::dup2(other.get(), file_.get()), file_.get());
  const auto opened = device_.import_range(0, handle_of(*token));
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("not the shared file"), std::string::npos);
}

TEST_F(HostIpc, AFileThatWasCutOffIsRefused) {
  const auto token = SharedFileToken::of(file_.get());
  ASSERT_EQ(::ftruncate(file_.get(), 4096), 0);
  EXPECT_FALSE(device_.import_range(0, handle_of(*token)).ok());
}

TEST_F(HostIpc, TellsWhetherWhatItExportedStillExists) {
  SharedMemory memory = SharedMemory::create(kFile);
  const hcd_ipc_handle shared = shared_range(memory.data(), 1)->handle;
  const hcd_ipc_handle file = handle_of(*SharedFileToken::of(file_.get()));
  EXPECT_TRUE(device_.still_exported(0, shared));
  EXPECT_TRUE(device_.still_exported(0, file));
  expect_in_a_child(
      [&] { return !device_.still_exported(0, shared) && !device_.still_exported(0, file); });
  memory = SharedMemory();
  EXPECT_FALSE(device_.still_exported(0, shared));
  const Fd other(::memfd_create("another", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(other.get(), kFile), 0);
  ASSERT_EQ(::dup2(other.get(), file_.get()), file_.get());
  EXPECT_FALSE(device_.still_exported(0, file)) << "the number is another file's by now";
  EXPECT_FALSE(device_.still_exported(0, hcd_ipc_handle{}));
}

TEST_F(HostIpc, OnlyFilesWithSomethingInThemAreDescribed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd read(ends[0]), write(ends[1]);
  EXPECT_FALSE(SharedFileToken::of(read.get()));
  EXPECT_FALSE(SharedFileToken::of(-1));
  ASSERT_EQ(::ftruncate(file_.get(), 0), 0);
  EXPECT_FALSE(SharedFileToken::of(file_.get()));
}

}  // namespace
}  // namespace hccl_like

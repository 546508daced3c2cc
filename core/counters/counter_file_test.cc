#include "core/counters/counter_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/counters/question_file.h"

namespace hccl_like {
namespace {

using counter_layout::File;
using std::chrono::nanoseconds;

constexpr std::string_view kKindNames[] = {"all_reduce", "send"};

// The counter files of this process, as another process finds them.
std::vector<std::string> counter_files() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.string().find(CounterFile::kName) != std::string::npos)
      found.push_back(entry.path());
  }
  return found;
}

TEST(CounterFile, IsFoundByOtherProcessesOfTheUserOnlyAndEndsWithItsOwner) {
  auto file = CounterFile::make(kKindNames);
  const auto found = counter_files();
  ASSERT_EQ(found.size(), 1U);
  struct stat status {};
  ASSERT_EQ(::stat(found[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(status.st_size, static_cast<off_t>(sizeof(File)));
  Fd reader(::open(found[0].c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  EXPECT_NE(::ftruncate(reader.get(), 0), 0);
  reader.reset();
  file.reset();
  EXPECT_TRUE(counter_files().empty());
}

TEST(CounterFile, ShowsWhatIsCountedToAReader) {
  const auto file = CounterFile::make(kKindNames);
  file->set_job(99, 1, 4);
  const auto group = file->add({.id = 7, .rank = 1, .size = 4, .global_rank = 3, .name = "dp"});
  const Fd reader(::open(counter_files().front().c_str(), O_RDONLY | O_CLOEXEC));
  const Mapping mapping = Mapping::map(reader.get(), sizeof(File), PROT_READ, MAP_SHARED);
  const File& seen = *reinterpret_cast<const File*>(mapping.data());
  EXPECT_EQ(seen.header.magic, counter_layout::kMagic);
  EXPECT_EQ(seen.header.pid, static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(seen.header.job, 99U);
  EXPECT_EQ(seen.header.rank, 1);
  EXPECT_STREQ(seen.header.names[1].data(), "send");
  const GroupCounters::Call calls[] = {{0, 8}, {1, 100}};
  group->made_collective(5, 0);
  group->made_message(6, 1, 2);
  group->over(calls, nanoseconds(30));
  const counter_layout::Group& slot = seen.groups[0];
  EXPECT_STREQ(slot.name.data(), "dp");
  EXPECT_EQ(slot.global_rank, 3);
  EXPECT_EQ(slot.collective, 5U);
  EXPECT_EQ(slot.latest, 6U << 8 | 2U);
  EXPECT_EQ(slot.peer, 2);
  EXPECT_EQ(slot.calls[0].over, 1U);
  EXPECT_EQ(slot.calls[0].nanoseconds, 30U);
  EXPECT_EQ(slot.calls[1].bytes, 100U);
  EXPECT_EQ(slot.calls[1].nanoseconds, 0U);  // a block's time counts once
}

TEST(CounterFile, TellsCallsThatRunFromThoseThatAreOverOrFailed) {
  const auto file = CounterFile::make(kKindNames);
  const auto group = file->add({});
  const auto& slot = file->contents().groups[0];
  const GroupCounters::Call call[] = {{0, 8}};
  group->launched();
  EXPECT_EQ(slot.launched - slot.finished, 1U);
  EXPECT_NE(slot.progress_ns, 0U);
  group->finished(call, nanoseconds(1), /*failed=*/true);
  EXPECT_EQ(slot.launched - slot.finished, 0U);
  EXPECT_EQ(slot.calls[0].failed, 1U);
  EXPECT_EQ(slot.calls[0].over, 0U);
  group->refused();
  EXPECT_EQ(slot.refused, 1U);
}

TEST(CounterFile, ReusesTheSlotOfAClosedGroupWithAnotherSerial) {
  const auto file = CounterFile::make(kKindNames);
  const auto& slot = file->contents().groups[0];
  auto first = file->add({.name = "a rather long name, of which only the beginning is kept here, "
                                  "as it has 64 bytes"});
  EXPECT_EQ(std::string_view(slot.name.data()).size(), counter_layout::kNameBytes - 1);
  first->made_collective(1, 0);
  const uint64_t serial = slot.serial;
  first.reset();
  EXPECT_EQ(slot.serial, 0U);
  const auto second = file->add({.name = "b"});
  EXPECT_GT(slot.serial, serial);
  EXPECT_EQ(slot.latest, 0U);
}

TEST(CounterFile, CountsNothingForGroupsBeyondItsSlots) {
  const auto file = CounterFile::make(kKindNames);
  std::vector<std::shared_ptr<GroupCounters>> groups;
  for (size_t i = 0; i < counter_layout::kGroups + 2; ++i) groups.push_back(file->add({}));
  EXPECT_EQ(file->contents().header.uncounted, 2U);
  groups.back()->made_collective(1, 0);
  groups.back()->launched();
  groups.back()->over({}, nanoseconds(1));
}

TEST(CounterFile, KeepsItsGroupsWhenAForkedChildEnds) {
  const auto file = CounterFile::make(kKindNames);
  auto group = file->add({});
  const pid_t child = ::fork();
  if (child == 0) {
    group.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_NE(file->contents().groups[0].serial, 0U);
}

TEST(CounterFile, IsCompactWithoutTheSlotsThatNobodyUses) {
  auto file = CounterFile::make(kKindNames);
  const auto group = file->add({.id = 7, .rank = 1, .size = 2, .global_rank = 1, .name = "dp"});
  group->made_collective(5, 0);
  ASSERT_NE(file->add_peer(3), nullptr);
  const std::string all = file->compact();
  ASSERT_EQ(all.size(), sizeof(uint64_t) + sizeof(counter_layout::Header) +
                            sizeof(counter_layout::Group) + sizeof(counter_layout::Peer));
  const char* at = all.data() + sizeof(uint64_t);
  const auto number = [&](size_t offset) {
    uint32_t value = 0;
    std::memcpy(&value, at + offset, sizeof value);
    return value;
  };
  EXPECT_EQ(number(offsetof(counter_layout::Header, groups)), 1U);
  EXPECT_EQ(number(offsetof(counter_layout::Header, peers)), 1U);
  EXPECT_EQ(number(sizeof(counter_layout::Header) + offsetof(counter_layout::Group, collective)),
            5U);
}

TEST(QuestionFile, GivesTheLatestQuestionAndItsAnswer) {
  const auto file = QuestionFile::make();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->asked(), 0U);
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.string().find(QuestionFile::kName) != std::string::npos) path = entry.path();
  }
  const Fd reader(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  const uint64_t question = 42;
  ASSERT_EQ(::pwrite(reader.get(), &question, sizeof question, 16), 8);
  EXPECT_EQ(file->asked(), 42U);
  file->answer(42, "four and twenty");
  uint64_t answered = 0, bytes = 0;
  ASSERT_EQ(::pread(reader.get(), &answered, sizeof answered, 24), 8);
  ASSERT_EQ(::pread(reader.get(), &bytes, sizeof bytes, 32), 8);
  EXPECT_EQ(answered, 42U);
  std::string text(bytes, ' ');
  ASSERT_EQ(::pread(reader.get(), text.data(), text.size(), 40), 15);
  EXPECT_EQ(text, "four and twenty");
  file->forget(41);
  EXPECT_EQ(file->asked(), 42U);
  file->forget(42);
  EXPECT_EQ(file->asked(), 0U);
  ASSERT_EQ(::ftruncate(reader.get(), 0), 0);  // harms nobody
  EXPECT_EQ(file->asked(), 0U);
}

}  // namespace
}  // namespace hccl_like

#include "collectives/engine/group_table.h"

#include <gtest/gtest.h>

#include <string>

#include "collectives/engine/communicator.h"

namespace hccl_like {
namespace {

// A table looks at nothing but the pointers.
std::shared_ptr<Communicator> some_group(const std::shared_ptr<int>& owner) {
  return {owner, reinterpret_cast<Communicator*>(owner.get())};
}
const Link& some_link() {
  static int place;
  return reinterpret_cast<const Link&>(place);
}

TEST(GroupTable, FindsAGroupWhileItLives) {
  GroupTable table;
  auto owner = std::make_shared<int>(0);
  EXPECT_EQ(table.find(7), nullptr);
  EXPECT_FALSE(table.add(7, some_group(owner)));
  EXPECT_EQ(table.find(7), some_group(owner));
  owner.reset();
  EXPECT_EQ(table.find(7), nullptr) << "its owner has let go of it";
  owner = std::make_shared<int>(0);
  table.add(7, some_group(owner));
  table.remove(7);
  EXPECT_EQ(table.find(7), nullptr);
}

TEST(GroupTable, KeepsTheReportOfAGroupUntilThatIsMade) {
  GroupTable table;
  EXPECT_EQ(table.find_or_keep(some_link(), {.communicator = 7, .reason = "no memory"}), nullptr);
  const auto owner = std::make_shared<int>(0);
  EXPECT_FALSE(table.add(8, some_group(owner)));
  const auto early = table.add(7, some_group(owner));
  ASSERT_TRUE(early);
  EXPECT_EQ(early->reason, "no memory");
  EXPECT_EQ(early->link, &some_link());
  EXPECT_FALSE(table.add(7, some_group(owner))) << "once";
  EXPECT_EQ(table.find_or_keep(some_link(), {.communicator = 7, .reason = "again"}),
            some_group(owner));
}

TEST(GroupTable, ForgetsTheOldestOfManyReports) {
  GroupTable table;
  for (uint64_t id = 0; id < 65; ++id)
    table.find_or_keep(some_link(), {.communicator = id, .reason = "gone"});
  const auto owner = std::make_shared<int>(0);
  EXPECT_FALSE(table.add(0, some_group(owner)));
  for (uint64_t id = 1; id < 65; ++id) EXPECT_TRUE(table.add(id, some_group(owner))) << id;
}

}  // namespace
}  // namespace hccl_like

// A group finds its earlier agreements again. Of too many, it forgets the oldest.
#include "collectives/same_host/known_memory.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

// Of two ranks, the first with a buffer to read, the second with one to write.
std::shared_ptr<const KnownMemory::Agreement> agreement(uint64_t number, uint64_t accepted = 3) {
  auto made = std::make_shared<KnownMemory::Agreement>();
  made->offers = {{.input = number + 1}, {.output = number + 2}};
  made->accepted = accepted;
  return made;
}

TEST(KnownMemory, FindsWhatWasAgreedAboutTheSameOffers) {
  KnownMemory known;
  EXPECT_EQ(known.find(agreement(1)->offers), nullptr);
  known.remember(agreement(1));
  ASSERT_NE(known.find(agreement(1)->offers), nullptr);
  auto swapped = agreement(1)->offers;
  std::swap(swapped[0], swapped[1]);
  EXPECT_EQ(known.find(swapped), nullptr);
  auto other = agreement(1)->offers;
  other[0].output = 7;
  EXPECT_EQ(known.find(other), nullptr);
}

TEST(KnownMemory, TheNewestAgreementCounts) {
  KnownMemory known;
  known.remember(agreement(1, 3));
  known.remember(agreement(1, 2));
  EXPECT_EQ(known.find(agreement(1)->offers)->accepted, 2u);
}

TEST(KnownMemory, ForgetsTheOldestOfMany) {
  KnownMemory known;
  for (uint64_t i = 0; i <= KnownMemory::kMost; ++i) {
    known.remember(agreement(100 * i));
    known.remember(agreement(100 * i));  // counts once
  }
  EXPECT_EQ(known.find(agreement(0)->offers), nullptr);
  for (uint64_t i = 1; i <= KnownMemory::kMost; ++i)
    EXPECT_NE(known.find(agreement(100 * i)->offers), nullptr) << i;
}

}  // namespace
}  // namespace hccl_like

#include "core/base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace hccl_like {
namespace {

TEST(Result, HoldsAValueThatCanOnlyMove) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result.value(), 7);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

TEST(Result, ThrowsItsErrorWhenAskedForAValue) {
  Result<int> result(Error{ErrorCode::kDevice, "no such device"});
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "no such device");
  EXPECT_THROW(result.value(), Exception);
}

TEST(Result, ThrowIfThrowsOnlyErrors) {
  EXPECT_NO_THROW(throw_if(std::nullopt));
  EXPECT_THROW(throw_if(Error{ErrorCode::kDevice, "lost"}), Exception);
}

}  // namespace
}  // namespace hccl_like

// Names of tests that have an algorithm as their parameter.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "collectives/registry/algorithms.h"

namespace hccl_like::testing {

inline std::string algorithm_name(const ::testing::TestParamInfo<const Algorithm*>& tested) {
  return std::string(name(tested.param->collective)) + '_' + std::string(tested.param->name);
}

}  // namespace hccl_like::testing

#pragma once
// Test support for large calls of one host: memory that peers can map.
#include <algorithm>
#include <ostream>

#include <gtest/gtest.h>

#include "collectives/board/board_call.h"
#include "device/host/host_api.h"
#include "device/host/shared_pool.h"

namespace hccl_like::testing {

inline const Device& host() {
  static const Device device(host_api());
  return device;
}

class Numbers {
 public:
  Numbers(size_t count, int32_t value)
      : data_(static_cast<int32_t*>(
            SharedPool::of_process().allocate(std::max<size_t>(1, count) * sizeof(int32_t)))),
        count_(count) {
    std::fill_n(data_, count, value);
  }
  ~Numbers() { SharedPool::of_process().free(data_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  int32_t& operator[](size_t i) { return data_[i]; }
  size_t size() const { return count_; }
  Region region() { return {reinterpret_cast<std::byte*>(data_), count_ * sizeof(int32_t)}; }
  Region part(size_t i, size_t count) {
    return {reinterpret_cast<std::byte*>(data_ + i * count), count * sizeof(int32_t)};
  }

 private:
  int32_t* data_;
  size_t count_;
};

enum class Sharing { kNobody, kInputs, kOutputs, kEverybody, kEvenRanks };

inline ExportedRange exported(Region region) {
  return host().export_range(0, {region.data, 0}, region.bytes).value();
}

inline void share(Call& call, Sharing sharing, int rank, Region input, Region output) {
  call.device = &host();
  const bool all =
      sharing == Sharing::kEverybody || (sharing == Sharing::kEvenRanks && rank % 2 == 0);
  if ((all || sharing == Sharing::kInputs) && call.input.total_bytes() > 0)
    call.shared_input = exported(input);
  if ((all || sharing == Sharing::kOutputs) && call.output.total_bytes() > 0)
    call.shared_output = exported(output);
}

struct SteppedCall {
  BoardCall on(Board& board, uint32_t number) const {
    return {.board = &board,
            .call = &call,
            .plan = &plan,
            .input = &call.input,
            .output = &call.output,
            .resources = &resources,
            .number = number};
  }
  Call call;
  Plan plan{.reduction = reduction(DataType::kInt32, ReduceOp::kSum), .fingerprint = 7};
  SameHostResources resources;
};

inline int32_t value(int from, int to, size_t i) {
  return from * 100'000 + to * 10'000 + static_cast<int32_t>(i % 9'973);
}

// Sum over all ranks of the data for rank `to`.
inline int32_t sum_to(int to, int ranks, size_t i) {
  int32_t total = 0;
  for (int from = 0; from < ranks; ++from) total += value(from, to, i);
  return total;
}

// Elements that `from` gives `to` if counts differ: none, less than a board takes, or some blocks.
inline size_t uneven_count(int from, int to, size_t unit) {
  static constexpr size_t kTimes[] = {0, 1, 3, 7, 2};
  return kTimes[static_cast<size_t>(from * 2 + to * 3) % 5] * unit;
}

struct DirectCase {
  int ranks;
  Sharing sharing;
};

inline void PrintTo(const DirectCase& setting, std::ostream* out) {
  static const char* const kNames[] = {"nobody", "inputs", "outputs", "everybody", "even ranks"};
  *out << setting.ranks << " ranks, " << kNames[static_cast<int>(setting.sharing)];
}

inline constexpr size_t kInt = sizeof(int32_t);

inline auto all_settings() {
  return ::testing::Values(DirectCase{2, Sharing::kNobody}, DirectCase{2, Sharing::kInputs},
                           DirectCase{2, Sharing::kOutputs}, DirectCase{2, Sharing::kEverybody},
                           DirectCase{2, Sharing::kEvenRanks}, DirectCase{3, Sharing::kNobody},
                           DirectCase{3, Sharing::kInputs}, DirectCase{3, Sharing::kOutputs},
                           DirectCase{3, Sharing::kEverybody}, DirectCase{3, Sharing::kEvenRanks},
                           DirectCase{4, Sharing::kEvenRanks}, DirectCase{5, Sharing::kEverybody});
}

}  // namespace hccl_like::testing

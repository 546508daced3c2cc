#include "bench/cpp/collective.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "bench/cpp/options.h"
#include "bench/cpp/shared_barrier.h"
#include "bench/cpp/table.h"
#include "device/host/host_api.h"

namespace hccl_like::bench {
namespace {

TEST(Shape, GivesTheBusBandwidthFactorsOfNcclTests) {
  EXPECT_DOUBLE_EQ(shape("all_reduce").factor(4), 1.5);
  for (const char* name : {"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"})
    EXPECT_DOUBLE_EQ(shape(name).factor(4), 0.75) << name;
  for (const char* name : {"broadcast", "reduce", "sendrecv"})
    EXPECT_DOUBLE_EQ(shape(name).factor(4), 1.0) << name;
}

TEST(Buffers, InPlaceAreThePartsThatTorchUses) {
  const Case row{.rank = 1,
                 .ranks = 3,
                 .count = 5,
                 .type = DataType::kFloat32,
                 .op = ReduceOp::kSum,
                 .root = 1};
  const Buffers gathered(shape("all_gather"), row, true);
  EXPECT_EQ(gathered.send().data(), gathered.receive().data() + 20);
  EXPECT_EQ(gathered.receive().size(), 60u);
  const Buffers scattered(shape("scatter"), row, true);
  EXPECT_EQ(scattered.receive().data(), scattered.send().data() + 20);
  const Buffers reduced(shape("all_reduce"), row, true);
  EXPECT_EQ(reduced.receive().data(), reduced.send().data());
}

TEST(Buffers, OutOfPlaceAreApart) {
  const Case row{
      .rank = 0, .ranks = 2, .count = 7, .type = DataType::kInt8, .op = ReduceOp::kSum, .root = -1};
  const Buffers buffers(shape("all_reduce"), row, false);
  EXPECT_NE(buffers.receive().data(), buffers.send().data());
}

TEST(Buffers, InSharedMemorySayWhereItIs) {
  const Device host(host_api());
  const Case row{.rank = 1,
                 .ranks = 2,
                 .count = 5000,
                 .type = DataType::kFloat32,
                 .op = ReduceOp::kSum,
                 .root = -1};
  const Buffers shared(shape("all_gather"), row, true, &host);
  const Call call = shared.calls().at(0);
  EXPECT_EQ(call.device, &host);
  ASSERT_TRUE(call.shared_input && call.shared_output);
  EXPECT_EQ(call.shared_input->offset, call.shared_output->offset + 20000);
  const std::vector<Call> both = Buffers(shape("sendrecv"), row, false, &host).calls();
  EXPECT_TRUE(both.at(0).shared_input && !both.at(0).shared_output);
  EXPECT_TRUE(!both.at(1).shared_input && both.at(1).shared_output);
  const Buffers ordinary(shape("all_gather"), row, true);
  EXPECT_FALSE(ordinary.calls().at(0).shared_input);
}

TEST(Buffers, AreBothRewrittenByTheirOwner) {
  const Case row{
      .rank = 0, .ranks = 2, .count = 7, .type = DataType::kInt8, .op = ReduceOp::kSum, .root = -1};
  Buffers buffers(shape("all_reduce"), row, false);
  buffers.rewrite();
  for (const auto& bytes : {buffers.send(), buffers.receive()}) {
    EXPECT_EQ(bytes[0], std::byte{0x80});
    EXPECT_EQ(bytes[6], std::byte{0x80});  // the rest of the last word
  }
}

TEST(Buffers, NoticeAResultThatNeverCame) {
  const Case row{.rank = 0,
                 .ranks = 2,
                 .count = 100,
                 .type = DataType::kFloat32,
                 .op = ReduceOp::kSum,
                 .root = -1};
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"}) {
    Buffers buffers(shape(name), row, false);
    buffers.prepare(0);
    EXPECT_EQ(buffers.count_wrong(0), buffers.receive().size() / 4) << name;
  }
}

TEST(Options, ReadSizesWithUnits) {
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("64k"), 65536u);
  EXPECT_EQ(parse_size("16MiB"), 16u << 20);
  EXPECT_EQ(parse_size("1GB"), 1u << 30);
  EXPECT_THROW(parse_size("many"), std::invalid_argument);
  EXPECT_THROW(parse_size(""), std::invalid_argument);
}

TEST(Options, StepByFactorOrByBytes) {
  Options options{.collective = "all_reduce", .min_bytes = 8, .max_bytes = 600, .step_factor = 8};
  EXPECT_EQ(sizes(options), (std::vector<uint64_t>{8, 64, 512, 600}));
  options.step_bytes = 300;
  EXPECT_EQ(sizes(options), (std::vector<uint64_t>{8, 308, 600}));
  options.collective = "barrier";
  EXPECT_EQ(sizes(options), std::vector<uint64_t>{0});
}

TEST(Options, GoOnAfter0WithOneElement) {
  Options options{.collective = "all_reduce", .min_bytes = 0, .max_bytes = 64, .step_factor = 8};
  EXPECT_EQ(sizes(options), (std::vector<uint64_t>{0, 4, 32, 64}));
  options.type = "complex128";
  EXPECT_EQ(sizes(options), (std::vector<uint64_t>{0, 16, 64}));
  options.type = "all";
  EXPECT_EQ(sizes(options), (std::vector<uint64_t>{0, 1, 8, 64}));
  options.step_bytes = 40;
  EXPECT_EQ(sizes(options), (std::vector<uint64_t>{0, 40, 64}));
  options.max_bytes = 0;
  EXPECT_EQ(sizes(options), std::vector<uint64_t>{0});
}

Options parsed(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int exit_code = 0;
  return parse(static_cast<int>(arguments.size()), arguments.data(), &exit_code).value();
}

TEST(Options, NameTheFormAndTheBatch) {
  const Options options = parsed({"all_gather_perf", "--form", "in-place", "--batch", "50"});
  EXPECT_EQ(options.collective, "all_gather");
  EXPECT_EQ(options.form, "in-place");
  EXPECT_EQ(options.batch, 50);
}

TEST(SharedBarrier, LetsNobodyPassBeforeTheLastIsThere) {
  constexpr uint32_t kRanks = 3;
  constexpr int kRounds = 2000;
  SharedBarrier* barrier = SharedBarrier::anonymous();
  std::atomic<int> arrived{0}, early{0};
  const auto rank = [&] {
    for (int round = 1; round <= kRounds; ++round) {
      ++arrived;
      barrier->wait(kRanks);
      if (arrived < round * static_cast<int>(kRanks)) ++early;
    }
  };
  std::vector<std::thread> ranks;
  for (uint32_t i = 0; i < kRanks; ++i) ranks.emplace_back(rank);
  for (std::thread& one : ranks) one.join();
  EXPECT_EQ(early, 0);
}

TEST(Table, NumbersKeepAsManyDecimalsAsFit) {
  EXPECT_EQ(number(1.234, 7), "1.23");
  EXPECT_EQ(number(123456.78, 7), "123457");
  EXPECT_EQ(number(12345.67, 7), "12345.7");
}

TEST(Table, SaysWhatPartOfTheFloorATimeIs) {
  Row row{.size = 8, .count = 2, .type = "float", .op = "sum"};
  row.in_place = Block{.time_us = 12.5, .floor_us = 5};
  EXPECT_TRUE(to_string(row, true).ends_with("   5.00      40"));
  row.in_place->floor_us = 0;
  EXPECT_TRUE(to_string(row, true).ends_with("      -       -"));
}

TEST(Table, AlignsTheHeaderWithTheRows) {
  const Block block{.time_us = 12.5, .p99_us = 20, .algbw = 1.5, .busbw = 1.5, .wrong = 0};
  const std::string row = to_string(Row{.size = 8,
                                        .count = 2,
                                        .type = "float",
                                        .op = "sum",
                                        .out_of_place = block,
                                        .in_place = block,
                                        .foreign = 0.25},
                                    true);
  const std::string header = table_header();
  const std::string names = header.substr(header.find("#       size"));
  EXPECT_EQ(row.size(), names.find('\n'));
  EXPECT_EQ(row.find("float") + 5, names.find("type") + 4);
  EXPECT_EQ(row.find("12.50") + 5, names.find("time") + 4);
}

}  // namespace
}  // namespace hccl_like::bench

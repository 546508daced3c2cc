#pragma once
// Contract tests for device plugins. Instantiate in a test executable that links GoogleTest:
//
//   INSTANTIATE_TEST_SUITE_P(Sim, PluginContract, ::testing::Values(PluginUnderTest{...}),
//   plugin_name);
//
// Uses only the table. Entries that are null or return HCD_UNSUPPORTED skip their test.
#include "device/testing/plugin_contract_fixture.h"
#include "device/testing/plugin_contract_memory.h"
#include "device/testing/plugin_contract_small.h"
#include "device/testing/plugin_contract_streams.h"

namespace hccl_like {

TEST_P(PluginContract, HasTheMandatoryEntries) {
  const hcd_api& api = *GetParam().api;
  EXPECT_GE(api.size, offsetof(hcd_api, copy_h2d) + sizeof(api.copy_h2d));
  EXPECT_FALSE(device_.name().empty());
  EXPECT_NE(api.last_error(), nullptr);
}

TEST_P(PluginContract, FillsNoMoreOfTheInfoThanTheCallerHas) {
  const hcd_api& api = *GetParam().api;
  if (!HCD_HAS(&api, device_info)) GTEST_SKIP() << "no device_info";
  hcd_device_info info;
  std::memset(&info, 0xa5, sizeof(info));
  info.size = offsetof(hcd_device_info, uuid);
  ASSERT_EQ(api.device_info(kIndex, &info), HCD_OK) << api.last_error();
  EXPECT_EQ(static_cast<unsigned char>(info.uuid[0]), 0xa5);
  EXPECT_EQ(static_cast<unsigned char>(info.pci[15]), 0xa5);
  EXPECT_TRUE(device_.info(kIndex).ok());
}

TEST_P(PluginContract, CopiesAnyRange) {
  for (const hcd_stream stream : streams_) {
    const auto all = pattern(kBytes, 7);
    write(0, all, stream);
    EXPECT_EQ(read(0, kBytes, stream), all);
    for (const size_t offset : {size_t{1}, size_t{4095}, size_t{4096}, size_t{69'999}}) {
      const size_t bytes = std::min(kBytes - offset, size_t{4097});
      const std::vector<unsigned char> part(all.begin() + static_cast<long>(offset),
                                            all.begin() + static_cast<long>(offset + bytes));
      EXPECT_EQ(read(offset, bytes, stream), part) << "at " << offset;
    }
  }
}

TEST_P(PluginContract, WritesOnlyTheRange) {
  for (const hcd_stream stream : streams_) {
    auto expected = pattern(kBytes, 1);
    write(0, expected, stream);
    const auto part = pattern(33, 99);
    write(1001, part, stream);
    std::copy(part.begin(), part.end(), expected.begin() + 1001);
    EXPECT_EQ(read(0, kBytes, stream), expected);
  }
}

TEST_P(PluginContract, CopiesNothing) {
  for (const hcd_stream stream : streams_) {
    EXPECT_FALSE(device_.copy_from_host(kIndex, at(5), nullptr, 0, stream));
    EXPECT_FALSE(device_.copy_to_host(kIndex, nullptr, at(kBytes), 0, stream));
    EXPECT_FALSE(device_.synchronize(kIndex, stream));
  }
}

TEST_P(PluginContract, MapsTheSameMemory) {
  if (!device_.can_map()) GTEST_SKIP() << "no map";
  const hcd_stream stream = streams_.front();
  auto expected = pattern(kBytes, 3);
  write(0, expected, stream);
  {
    Result<MappedRange> range = device_.map(kIndex, at(777), 5000);
    ASSERT_TRUE(range.ok()) << range.error();
    EXPECT_EQ(std::memcmp(range.value().data(), expected.data() + 777, 5000), 0);
    range.value().data()[4999] = std::byte{0x42};
  }
  expected[777 + 4999] = 0x42;
  EXPECT_EQ(read(0, kBytes, stream), expected);
}

TEST_P(PluginContract, MapsTwoRangesAtOnce) {
  if (!device_.can_map()) GTEST_SKIP() << "no map";
  const auto expected = pattern(kBytes, 4);
  write(0, expected, streams_.front());
  const MappedRange first = device_.map(kIndex, at(0), 100).value();
  MappedRange second = device_.map(kIndex, at(50), 100).value();
  EXPECT_EQ(std::memcmp(second.data(), expected.data() + 50, 100), 0);
  second.reset();
  EXPECT_EQ(std::memcmp(first.data(), expected.data(), 100), 0);
}

// Both copies use the same host memory and the function changes it between them: only this order
// gives this result.
TEST_P(PluginContract, RunsHostFunctionsInStreamOrder) {
  if (!device_.can_queue_functions()) GTEST_SKIP() << "no host_func";
  for (const hcd_stream stream : streams_) {
    if (stream == 0) continue;
    HostData data(device_, pattern(kBytes, 1));
    struct Shared {
      std::atomic<bool> may_run{false};
      unsigned char* data;
    } shared{.data = data.begin()};
    const auto change = [](void* arg) {
      auto& s = *static_cast<Shared*>(arg);
      while (!s.may_run.load()) std::this_thread::yield();
      for (size_t i = 0; i < kBytes; ++i) s.data[i] = static_cast<unsigned char>(s.data[i] + 1);
    };
    auto expected = pattern(kBytes, 1);
    for (unsigned char& byte : expected) byte = static_cast<unsigned char>(byte + 1);
    throw_if(device_.host_function(kIndex, stream, change, &shared));
    throw_if(device_.copy_from_host(kIndex, at(0), shared.data, kBytes, stream));
    shared.may_run = true;
    throw_if(device_.synchronize(kIndex, stream));
    EXPECT_EQ(read(0, kBytes, stream), expected);
  }
}

TEST_P(PluginContract, CopiesOrdinaryHostMemoryBehindEarlierWork) {
  if (!device_.can_queue_functions()) GTEST_SKIP() << "no host_func";
  for (const hcd_stream stream : streams_) {
    if (stream == 0) continue;
    auto data = pattern(kBytes, 1), expected = pattern(kBytes, 2);
    const auto change = [](void* arg) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto next = pattern(kBytes, 2);
      std::memcpy(arg, next.data(), kBytes);
    };
    throw_if(device_.host_function(kIndex, stream, change, data.data()));
    throw_if(device_.copy_from_host(kIndex, at(0), data.data(), kBytes, stream));
    throw_if(device_.synchronize(kIndex, stream));
    EXPECT_EQ(read(0, kBytes, stream), expected);
  }
}

TEST_P(PluginContract, KeepsTheOrderOfHostFunctions) {
  if (!device_.can_queue_functions()) GTEST_SKIP() << "no host_func";
  for (const hcd_stream stream : streams_) {
    if (stream == 0) continue;
    struct Note {
      std::vector<int>* order;
      int number;
    };
    std::vector<int> order, expected;
    std::vector<Note> notes;
    for (int i = 0; i < 100; ++i) notes.push_back({&order, i}), expected.push_back(i);
    const auto note = [](void* arg) {
      static_cast<Note*>(arg)->order->push_back(static_cast<Note*>(arg)->number);
    };
    for (Note& n : notes) throw_if(device_.host_function(kIndex, stream, note, &n));
    throw_if(device_.synchronize(kIndex, stream));
    EXPECT_EQ(order, expected);
  }
}

TEST_P(PluginContract, WaitsForWordsAndWritesThem) {
  if (!device_.can_wait_on_words()) GTEST_SKIP() << "no stream_wait_value";
  for (const hcd_stream stream : streams_) {
    if (stream == 0) continue;
    uint64_t gate = 0, passed = 0;
    throw_if(device_.wait_for_word(kIndex, stream, &gate, 3));
    throw_if(device_.write_word(kIndex, stream, &passed, 11));
    const std::atomic_ref<uint64_t> gate_word(gate), passed_word(passed);
    gate_word.store(2);
    EXPECT_EQ(passed_word.load(), 0u);
    gate_word.store(4);  // a larger value also ends the wait
    throw_if(device_.synchronize(kIndex, stream));
    EXPECT_EQ(passed_word.load(), 11u);
  }
}

TEST_P(PluginContract, ExportsWhatAnImportShows) {
  if (!device_.can_export()) GTEST_SKIP() << "no ipc_export";
  const auto expected = pattern(kBytes, 5);
  write(0, expected, streams_.front());
  Result<ExportedRange> exported = device_.export_range(kIndex, at(123), 1000);
  if (!exported.ok() && exported.error().code == ErrorCode::kUnsupported)
    GTEST_SKIP() << exported.error();  // there may be memory that cannot be exported
  ASSERT_TRUE(exported.ok()) << exported.error();
  Result<ImportedRange> imported = device_.import_range(kIndex, exported.value().handle);
  if (!imported.ok())
    GTEST_SKIP() << imported.error();  // a process need not be able to import from itself
  ASSERT_GE(imported.value().size(), exported.value().offset + 1000);
  EXPECT_EQ(
      std::memcmp(imported.value().data() + exported.value().offset, expected.data() + 123, 1000),
      0);
}

TEST_P(PluginContract, WhatIsWrittenToAnImportIsInTheMemory) {
  if (!device_.can_export()) GTEST_SKIP() << "no ipc_export";
  auto expected = pattern(kBytes, 8);
  write(0, expected, streams_.front());
  Result<ExportedRange> exported = device_.export_range(kIndex, at(kBytes - 100), 100);
  if (!exported.ok()) GTEST_SKIP() << exported.error();
  {
    Result<ImportedRange> imported = device_.import_range(kIndex, exported.value().handle);
    if (!imported.ok()) GTEST_SKIP() << imported.error();
    imported.value().data()[exported.value().offset + 99] = std::byte{0x42};
  }
  expected[kBytes - 1] = 0x42;
  EXPECT_EQ(read(0, kBytes, streams_.front()), expected);
}

TEST_P(PluginContract, AnAllocationHasOneHandle) {
  if (!device_.can_export()) GTEST_SKIP() << "no ipc_export";
  Result<ExportedRange> first = device_.export_range(kIndex, at(0), 10);
  if (!first.ok()) GTEST_SKIP() << first.error();
  const ExportedRange second = device_.export_range(kIndex, at(1000), 10).value();
  EXPECT_EQ(std::memcmp(first.value().handle.bytes, second.handle.bytes, 128), 0);
  EXPECT_EQ(second.offset, first.value().offset + 1000);
}

TEST_P(PluginContract, WhatIsExportedExists) {
  if (!device_.can_tell_freed_exports()) GTEST_SKIP() << "no ipc_lives";
  Result<ExportedRange> exported = device_.export_range(kIndex, at(0), 10);
  if (!exported.ok()) GTEST_SKIP() << exported.error();
  EXPECT_TRUE(device_.still_exported(kIndex, exported.value().handle));
  EXPECT_FALSE(device_.still_exported(kIndex, hcd_ipc_handle{})) << "no memory has this handle";
}

TEST_P(PluginContract, ImportsNothingThatIsNoHandle) {
  if (!device_.can_export()) GTEST_SKIP() << "no ipc_export";
  hcd_ipc_handle nonsense;
  std::memset(nonsense.bytes, 0x5a, sizeof nonsense.bytes);
  EXPECT_FALSE(device_.import_range(kIndex, nonsense).ok());
  EXPECT_FALSE(device_.import_range(kIndex, hcd_ipc_handle{}).ok());
}

TEST_P(PluginContract, OpensPeersMemoryAsItsOwn) {
  if (!device_.can_open_peers()) GTEST_SKIP() << "no peer_open";
  const auto expected = pattern(kBytes, 6);
  write(0, expected, streams_.front());
  Result<ExportedRange> exported = device_.export_range(kIndex, at(123), 1000);
  if (!exported.ok() && exported.error().code == ErrorCode::kUnsupported)
    GTEST_SKIP() << exported.error();  // there may be memory that cannot be exported
  ASSERT_TRUE(exported.ok()) << exported.error();
  Result<ImportedRange> opened = device_.open_peer(kIndex, exported.value().handle);
  if (!opened.ok())
    GTEST_SKIP() << opened.error();  // a process need not be able to import from itself
  std::vector<unsigned char> seen(1000);
  const hcd_ref there{opened.value().data(), exported.value().offset};
  throw_if(device_.copy_to_host(kIndex, seen.data(), there, seen.size(), 0));
  EXPECT_EQ(std::memcmp(seen.data(), expected.data() + 123, 1000), 0);
}

TEST_P(PluginContract, ServesSeveralThreads) {
  const hcd_stream stream = streams_.back();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < 20; ++round) {
        const auto data = pattern(1000, t * 50 + round);
        write(t * 1000, data, stream);
        if (read(t * 1000, 1000, stream) != data) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(PluginContract, StartsAgainAfterItsEnd) {
  const hcd_api& api = *GetParam().api;
  made_.reset();
  GetParam().free(base_);
  api.fini();
  EXPECT_EQ(api.init(), HCD_OK) << api.last_error();
  base_ = GetParam().allocate(kBytes);
  write(0, pattern(100, 9), 0);
  EXPECT_EQ(read(0, 100, 0), pattern(100, 9));
}

}  // namespace hccl_like

#pragma once
// Contract tests: plugin-made streams and events. Part of plugin_contract.h.
#include "device/testing/plugin_contract_fixture.h"

namespace hccl_like {

TEST_P(PluginContract, MakesStreamsThatKeepTheirOwnOrder) {
  if (!device_.can_make_streams()) GTEST_SKIP() << "no stream_create";
  const hcd_stream like = streams_.back();
  const DeviceStream first = device_.make_stream(kIndex, like).value();
  const DeviceStream second = device_.make_stream(kIndex, like, /*priority=*/1).value();
  EXPECT_NE(first.get(), second.get());
  EXPECT_NE(first.get(), 0u);
  const auto data = pattern(kBytes, 12);
  write(0, data, first.get());
  EXPECT_EQ(read(0, kBytes, second.get()), data);
  if (!can_close_gates()) return;
  for (const hcd_stream held_up : {first.get(), like}) {
    if (held_up == 0) continue;
    Gate gate(device_, held_up);
    write(0, pattern(100, 13), second.get());  // would deadlock if it waited for the other
    EXPECT_EQ(read(0, 100, second.get()), pattern(100, 13));
  }
}

TEST_P(PluginContract, DoesWhatIsQueuedOnAStreamThatEnds) {
  if (!device_.can_make_streams()) GTEST_SKIP() << "no stream_create";
  const auto data = pattern(kBytes, 14);
  {
    const DeviceStream stream = device_.make_stream(kIndex, streams_.back()).value();
    throw_if(device_.copy_from_host(kIndex, at(0), data.data(), data.size(), stream.get()));
    if (device_.can_record_events()) {
      const DeviceEvent end = device_.record(kIndex, stream.get()).value();
      throw_if(device_.synchronize(kIndex, end));
    } else {
      throw_if(device_.synchronize(kIndex, stream.get()));
    }
  }
  EXPECT_EQ(read(0, kBytes, streams_.front()), data);
}

TEST_P(PluginContract, AnEventOfNoStreamHasBeenPassed) {
  if (!device_.can_record_events()) GTEST_SKIP() << "no event_record";
  const DeviceEvent event = device_.record(kIndex, 0).value();
  throw_if(device_.synchronize(kIndex, event));
  EXPECT_TRUE(device_.passed(kIndex, event).value());
}

TEST_P(PluginContract, AnEventIsOnePointOfItsStream) {
  if (!device_.can_record_events()) GTEST_SKIP() << "no event_record";
  if (!can_close_gates()) GTEST_SKIP() << "nothing holds up a stream";
  for (const hcd_stream stream : streams_) {
    if (stream == 0) continue;
    const auto data = pattern(kBytes, 15);
    const DeviceEvent before = device_.record(kIndex, stream).value();
    HostData host(device_, data);
    Gate gate(device_, stream);
    throw_if(device_.copy_from_host(kIndex, at(0), host.begin(), data.size(), stream));
    const DeviceEvent after = device_.record(kIndex, stream).value();
    throw_if(device_.synchronize(kIndex, before));  // not held up by what came later
    EXPECT_TRUE(device_.passed(kIndex, before).value());
    EXPECT_FALSE(device_.passed(kIndex, after).value());
    gate.open();
    throw_if(device_.synchronize(kIndex, after));
    EXPECT_TRUE(device_.passed(kIndex, after).value());
    EXPECT_EQ(read(0, kBytes, 0), data);
  }
}

TEST_P(PluginContract, AStreamWaitsForAnEventOfAnother) {
  if (!device_.can_record_events() || !device_.can_make_streams())
    GTEST_SKIP() << "no event_record or no stream_create";
  if (!can_close_gates()) GTEST_SKIP() << "nothing holds up a stream";
  const DeviceStream writer = device_.make_stream(kIndex, streams_.back()).value();
  const DeviceStream reader = device_.make_stream(kIndex, streams_.back()).value();
  const auto data = pattern(kBytes, 16);
  std::vector<unsigned char> seen(kBytes);
  write(0, pattern(kBytes, 17), writer.get());
  HostData host(device_, data);
  Gate gate(device_, writer.get());
  throw_if(device_.copy_from_host(kIndex, at(0), host.begin(), kBytes, writer.get()));
  {
    const DeviceEvent written = device_.record(kIndex, writer.get()).value();
    throw_if(device_.wait_for_event(kIndex, reader.get(), written));
  }  // the event ends while the reader waits for it
  std::thread opens([&] { gate.open(); });  // a device may copy to plain host memory at once
  throw_if(device_.copy_to_host(kIndex, seen.data(), at(0), kBytes, reader.get()));
  throw_if(device_.synchronize(kIndex, reader.get()));
  opens.join();
  EXPECT_EQ(seen, data);
}

TEST_P(PluginContract, MakesEventsOnSeveralThreads) {
  if (!device_.can_record_events()) GTEST_SKIP() << "no event_record";
  const hcd_stream stream = streams_.back();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < 50; ++round) {
        const auto data = pattern(500, t * 50 + round);
        throw_if(device_.copy_from_host(kIndex, at(t * 500), data.data(), data.size(), stream));
        const DeviceEvent copied = device_.record(kIndex, stream).value();
        throw_if(device_.synchronize(kIndex, copied));
        if (read(t * 500, 500, 0) != data) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace hccl_like

#pragma once
// Test support: a StreamExecutor for each rank on a fake device, ranks as threads over shared
// memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "collectives/stream/stream_execution.h"
#include "collectives/testing/on_ranks.h"
#include "device/host/host_api.h"
#include "device/testing/fake_device.h"

namespace hccl_like::on_streams {

using testing::on_ranks;
using testing::Rank;

inline constexpr size_t kUint64 = sizeof(uint64_t);

// All ranks are in one process, so a peer's memory is reached by its own handle.
namespace sharing {

inline std::mutex mutex;
inline std::set<void*> refused;  // cannot be opened
// From now on, a device does nothing more and says so.
inline std::atomic<bool> lost{false};

inline int export_range(int, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle, uint64_t* offset) {
  if (fake_device::find(ref, bytes) == nullptr)
    return fake_device::fail(HCD_INVALID, "the range leaves the allocation");
  *handle = {};
  std::memcpy(handle->bytes, &ref.base, sizeof ref.base);
  *offset = ref.offset;
  return HCD_OK;
}
inline int open(int, const hcd_ipc_handle* handle, void** base, size_t* bytes) {
  std::memcpy(base, handle->bytes, sizeof *base);
  const std::scoped_lock lock(mutex, fake_device::mutex);
  if (refused.contains(*base)) return fake_device::fail(HCD_UNSUPPORTED, "no way to that device");
  *bytes = static_cast<fake_device::Allocation*>(*base)->bytes.size();
  return HCD_OK;
}
inline int close(int, void*) { return HCD_OK; }

inline hcd_api table() {
  hcd_api api = fake_device::api();
  static const hcd_api sound = api;
  api.host_func = [](int device, hcd_stream stream, void (*function)(void*), void* of) {
    return lost ? int{HCD_OK} : sound.host_func(device, stream, function, of);
  };
  api.event_query = [](int device, hcd_event event) {
    return lost ? fake_device::fail(HCD_DEVICE_LOST, "it fell off the bus")
                : sound.event_query(device, event);
  };
  api.ipc_export = export_range;
  api.ipc_open = [](int, const hcd_ipc_handle*, void**, size_t*) {
    return fake_device::fail(HCD_UNSUPPORTED, "the host does not reach the memory");
  };
  api.ipc_close = close;
  api.peer_open = open;
  api.peer_close = close;
  // Each page has one address here, and would be registered by each rank.
  api.host_register = nullptr;
  api.host_unregister = nullptr;
  return api;
}

// The host's memory at its own address, so that ThreadSanitizer sees what words order.
inline hcd_api host_table() {
  hcd_api api = host_api();
  api.ipc_export = [](int, hcd_ref ref, size_t, hcd_ipc_handle* handle, uint64_t* offset) {
    void* const at = static_cast<std::byte*>(ref.base) + ref.offset;
    *handle = {};
    std::memcpy(handle->bytes, &at, sizeof at);
    return *offset = 0, int{HCD_OK};
  };
  api.ipc_open = [](int, const hcd_ipc_handle* handle, void** host, size_t* bytes) {
    std::memcpy(host, handle->bytes, sizeof *host);
    return *bytes = size_t{1} << 20, int{HCD_OK};
  };
  api.ipc_close = close;
  return api;
}

}  // namespace sharing

// A rank's memory on the device, as numbers.
struct Numbers {
  explicit Numbers(size_t numbers) : count(numbers) { memory.bytes.resize(count * kUint64); }
  uint64_t* begin() { return reinterpret_cast<uint64_t*>(memory.bytes.data()); }
  std::vector<uint64_t> read() { return {begin(), begin() + count}; }
  DeviceRange side() { return {{&memory, 0}, count * kUint64}; }
  fake_device::Allocation memory;
  const size_t count;
};

struct Devices {
  const hcd_api table = sharing::table();
  const Device device{table};
  const hcd_api host_table = sharing::host_table();
  const Device host{host_table};
  std::mutex mutex;
  std::deque<Numbers> memory;  // of all ranks; peers still read that of a rank that has failed
};

inline uint64_t number(int rank, size_t i) { return (i + 1) * 1000 + static_cast<uint64_t>(rank); }
inline void fill(Numbers& numbers, int rank) {
  for (size_t i = 0; i < numbers.count; ++i) numbers.begin()[i] = number(rank, i);
}

// A layout with these sizes; its addresses are not used.
inline Layout sizes(size_t numbers, size_t chunks) {
  return Layout::even(Region{reinterpret_cast<std::byte*>(64), numbers * kUint64}, chunks, kUint64);
}
inline Layout own(int rank, size_t numbers) {
  const Region region{reinterpret_cast<std::byte*>(64), numbers * kUint64};
  return Layout::single({&region, 1}, static_cast<size_t>(rank), kUint64);
}

struct Executor {
  Executor(Devices& devices, const Rank& me)
      : devices(devices),
        device(devices.device),
        of(me.communicator.shared_from_this(), device, 0, devices.host, 0),
        me(me) {}

  Numbers& make(size_t count) {
    const std::lock_guard lock(devices.mutex);
    return devices.memory.emplace_back(count);
  }

  std::unique_ptr<StreamExecution> prepare(Call call, DeviceRange input, DeviceRange output) {
    return std::make_unique<StreamExecution>(of, std::move(call), input, output);
  }
  // One call after the other.
  bool run(Call call, DeviceRange input, DeviceRange output) {
    const auto execution = prepare(std::move(call), input, output);
    if (!execution->agree()) return false;
    execution->queue(std::nullopt);
    execution->await_begin();
    const auto error = execution->finish();
    EXPECT_FALSE(error.has_value()) << to_string(*error);
    return true;
  }

  Devices& devices;
  const Device& device;
  StreamExecutor of;
  const Rank me;
};

class Executors : public ::testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(Rank, Executor&)>& body) {
    Devices devices;
    on_ranks(GetParam(), {}, [&](Rank me) {
      ASSERT_TRUE(StreamExecutor::may_serve(devices.device, me.communicator.topology().hosts,
                                            me.communicator.path_options(Collective::kAllReduce),
                                            Collective::kAllReduce));
      Executor executor(devices, me);
      body(me, executor);
    });
  }
};

}  // namespace hccl_like::on_streams

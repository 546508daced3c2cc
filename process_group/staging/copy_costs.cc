#include "process_group/staging/copy_costs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "core/base/log.h"
#include "core/base/own_thread.h"
#include "process_group/device/device_capabilities.h"
#include "process_group/device/plugin_streams.h"
#include "process_group/staging/copy_queue.h"
#include "process_group/staging/device_side.h"
#include "process_group/staging/staging_memory.h"

namespace hccl_like {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBlock = size_t{8} << 20;
constexpr size_t kPart = size_t{64} << 10;
// Fractions of a whole copy: below kLittle counts as 0; above kMuch the measurement ends early.
constexpr double kLittle = 1.0 / 32, kMuch = 1.0 / 4;
constexpr int kLeastRounds = 6, kMostRounds = 24;
constexpr std::chrono::milliseconds kTimeout{100};  // no round begins later
// Parts are copied in batches with one wait, because on a busy host a wait costs more than a part.
constexpr int kMostInBatch = 16;
constexpr double kBatchSeconds = 0.02;

at::Tensor bytes_on(c10::Device device, size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device));
}

class TimedCopies {
 public:
  TimedCopies(Devices& devices, const DeviceAccess& access)
      : streams_(access.device(), access.plugin()),
        queue_(devices, access, streams_),
        host_(StagingMemory::make(access, kBlock)) {}

  // Seconds of one round trip, of `batch` that are queued together.
  double time(const at::Tensor& block, size_t begin, size_t bytes, int batch = 1) const {
    const at::Tensor there = part_of(block, begin, bytes);
    const at::Tensor here = host_.tensor.narrow(0, 0, static_cast<int64_t>(bytes));
    const auto start = Clock::now();
    for (int i = 0; i < batch; ++i) {
      queue_.to_host(here, there);
      queue_.to_device(here, there);
    }
    queue_.wait();
    return std::chrono::duration<double>(Clock::now() - start).count() / batch;
  }

 private:
  const PluginStreams streams_;
  const CopyQueue queue_;
  const StagingMemory host_;
};

std::string in_milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
  return text;
}

// Takes minimums, because other processes use the host. The small block gives the fixed cost.
CopyCosts measure(Devices& devices, const DeviceAccess& access) {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  const TimedCopies copies(devices, access);
  const at::Tensor block = bytes_on(access.device(), kBlock);
  const at::Tensor small = bytes_on(access.device(), kPart);
  constexpr double kNever = std::numeric_limits<double>::max();
  double whole = kNever, alone = kNever, per_block = 0;
  double part = copies.time(block, kBlock / 2, kPart);
  const auto end = Clock::now() + kTimeout;
  for (int round = 1; round <= kMostRounds; ++round) {
    const int batch = std::clamp(static_cast<int>(kBatchSeconds / part), 1, kMostInBatch);
    part = std::min(part, copies.time(block, kBlock / 2, kPart, batch));
    alone = std::min(alone, copies.time(small, 0, kPart, kMostInBatch));
    whole = std::min(whole, copies.time(block, 0, kBlock));
    per_block = std::clamp((part - alone) / whole, 0.0, 1.0);
    if (Clock::now() > end) break;  // a slow device gets one round
    if (round >= kLeastRounds && (per_block < kLittle || per_block > kMuch)) break;
  }
  return {.per_block = per_block < kLittle ? 0 : per_block,
          .known = true,
          .measured = "64 KiB of a block of 8 MiB went to the host and back in " +
                      in_milliseconds(part) + ", a block of 64 KiB in " + in_milliseconds(alone) +
                      ", all 8 MiB in " + in_milliseconds(whole)};
}

}  // namespace

bool CopyCosts::favour_whole(size_t bytes, size_t whole, size_t parts) const {
  const auto time = [&](size_t blocks) {
    return (1 - per_block) * static_cast<double>(bytes) + per_block * static_cast<double>(blocks);
  };
  return time(parts) >= 1.5 * time(whole);
}

namespace {

// Runs on its own thread, without operator hooks and dispatch modes.
CopyCosts measure_apart(Devices& devices, const DeviceAccess& access) {
  CopyCosts costs;
  try {
    own_thread("measures copies of a device", [&] {
      try {
        costs = measure(devices, access);
      } catch (const std::exception& error) {
        costs.measured = words_of(error);
      }
    }).join();
  } catch (const std::exception& error) {
    costs.measured = words_of(error);
  }
  if (costs.known)
    log_info([&] { return access.device().str() + ": copies of parts: " + costs.measured; });
  else
    log_warn(
        access.device().str() +
        ": what copies of parts cost could not be measured, so large calls are copied slice by "
        "slice: " +
        costs.measured);
  return costs;
}

}  // namespace

const CopyCosts& copy_costs_of(Devices& devices, const DeviceAccess& access) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<c10::DeviceIndex, CopyCosts>;
  std::lock_guard lock(mutex);
  const auto index = access.device().index();
  if (const auto found = known.find(index); found != known.end()) return found->second;
  return known.emplace(index, measure_apart(devices, access)).first->second;
}

}  // namespace hccl_like

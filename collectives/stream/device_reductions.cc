#include "collectives/stream/device_reductions.h"

#include <array>
#include <string>

#include "core/base/log.h"

namespace hccl_like {
namespace {

constexpr size_t kTrialBytes = 64;

}  // namespace

DeviceReductions::DeviceReductions(const Device& device, int index, hcd_stream stream)
    : device_(device),
      index_(index),
      stream_(stream),
      trial_(device.allocate(index, 2 * kTrialBytes).value()) {}

DeviceReductions::~DeviceReductions() {
  if (const auto error = device_.synchronize(index_, stream_))
    log_warn("a stream of a closed group does not end: " + error->message);
}

bool DeviceReductions::has(DataType type, ReduceOp op, Scaling scaling) {
  const auto [found, added] = known_.try_emplace({type, op, scaling.any()}, false);
  if (!added) return found->second;
  if (scaling.any() && (is_integer(type) || !device_.can_reduce_many())) return false;
  const hcd_ref one{trial_.data(), 0}, other{trial_.data(), kTrialBytes};
  const auto error =
      device_.can_reduce_many()
          ? device_.reduce_many(index_, one, std::array{one, other}, 1, type, op, scaling, stream_)
          : device_.reduce(index_, one, other, 1, type, op, stream_);
  if (error)
    log_info([&] {
      return "calls with " + std::string(name(op)) + " of " + std::string(name(type)) +
             " go through the host: " + error->message;
    });
  return found->second = !error;
}

}  // namespace hccl_like

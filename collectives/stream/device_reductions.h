#pragma once
// Which reductions a device has.
#include <map>
#include <tuple>

#include "device/device.h"

namespace hccl_like {

// Learns it by a trial of each on one element. One thread at a time.
class DeviceReductions {
 public:
  // The device and the stream outlive this object. Throws kDevice.
  DeviceReductions(const Device& device, int index, hcd_stream stream);
  // Waits for the trials.
  ~DeviceReductions();
  DeviceReductions(const DeviceReductions&) = delete;
  DeviceReductions& operator=(const DeviceReductions&) = delete;

  bool has(DataType type, ReduceOp op, Scaling scaling);

 private:
  const Device& device_;
  const int index_;
  const hcd_stream stream_;
  const MappedRange trial_;
  std::map<std::tuple<DataType, ReduceOp, bool>, bool> known_;
};

}  // namespace hccl_like

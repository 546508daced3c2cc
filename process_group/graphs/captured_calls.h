#pragma once
// Calls that graphs of a device capture.
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/stream/stream_execution.h"
#include "process_group/calls/request.h"
#include "process_group/device/devices.h"
#include "process_group/device/plugin_streams.h"

namespace hccl_like {

// The captured calls of one group on one device. A graph replays them as work of the device alone
// (collectives/stream/stream_execution.h): no host thread takes part, so all that is decided by
// ranks together is decided when the call is captured. Device memory of peers stays mapped, and the
// words of the calls exist, until this object is destroyed, for nobody tells when a graph is.
// Thread-safe.
class CapturedCalls {
 public:
  // The first two outlive this object.
  CapturedCalls(Devices& devices, const DeviceAccess& access,
                std::shared_ptr<Communicator> communicator);
  // Waits for replays that run.
  ~CapturedCalls();
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  // Adds the call to the graph that the calling thread's current stream captures. Blocks until all
  // ranks capture it. Returns its sequence number. Throws kMisuse, alike on all ranks, if streams
  // cannot make the call; kDevice; or the group's failure.
  uint32_t capture(const Request& request, std::chrono::milliseconds timeout);

 private:
  std::string why_not(const Request& request) const;
  StreamExecutor& executor(hcd_stream like);

  const DeviceAccess& access_;
  const DeviceAccess& host_;
  const PluginStreams streams_;
  const std::shared_ptr<Communicator> communicator_;
  std::mutex mutex_;  // one capture at a time
  std::unique_ptr<StreamExecutor> executor_;
  std::vector<std::unique_ptr<StreamExecution>> calls_;
};

}  // namespace hccl_like

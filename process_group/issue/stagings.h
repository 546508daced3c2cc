#pragma once
// The Stagings of one group on one device.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "collectives/stream/small_calls.h"
#include "process_group/calls/request.h"
#include "process_group/issue/host_phases.h"
#include "process_group/issue/staging.h"

namespace hccl_like {

// A Staging runs its calls one after the other. Collectives share one, because all ranks issue them
// in the same order. A message may wait for its peer indefinitely and must delay only later
// messages of the same peer, direction and tag, so each such row has its own Staging while in use.
// Under a lock of the caller.
class Stagings {
 public:
  Stagings(Devices& devices, const DeviceAccess& access, size_t most);

  // Null if the message would need more than kMost Stagings. A receive from any source gets one in
  // any case: it cannot answer before its sender is known (stream_message.h).
  Staging* find(const Request& request);
  // For calls of `communicator` that HostPhases may serve.
  HostPhases& host_phases(const std::shared_ptr<Communicator>& communicator);
  // The calls that kernels make, and where the last one ends. `next`: the group's next call.
  struct Small {
    std::shared_ptr<SmallCalls> calls;
    std::shared_ptr<c10::Event> end;
    std::optional<c10::Stream> stream;
  };
  Small& small(const std::shared_ptr<Communicator>& communicator, const Call& next);

 private:
  static constexpr size_t kMost = 4;  // Stagings for messages
  using Row = std::tuple<int, Collective, uint32_t>;
  struct OfMessages {
    Row row;
    std::unique_ptr<Staging> staging;
  };

  std::unique_ptr<Staging> make() const;

  Devices& devices_;
  const DeviceAccess& access_;
  const size_t most_;
  std::unique_ptr<Staging> collectives_;
  std::unique_ptr<HostPhases> host_phases_;
  Small small_;
  std::vector<OfMessages> messages_;
};

}  // namespace hccl_like

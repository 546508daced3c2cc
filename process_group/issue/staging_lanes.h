#pragma once
// The Stagings of one group on one device.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "process_group/calls/request.h"
#include "process_group/issue/staging.h"

namespace hccl_like {

// The calls of one Staging go one after the other. Collectives may, because all ranks issue them in
// one order. A message may wait for its other end as long as it likes and must hold nobody up but
// those behind it with its peer, direction and tag, which are received in that order anyway: such a
// row has a Staging for itself while any of it is under way. Under a lock of the caller's.
class StagingLanes {
 public:
  // As for Staging.
  StagingLanes(Devices& devices, const DeviceAccess& access, size_t most);

  // Null for a message for which no Staging is left: there are only so many.
  Staging* find(const Request& request);

 private:
  static constexpr size_t kMost = 4;  // for messages
  using Row = std::tuple<int, Collective, uint32_t>;
  struct Lane {
    Row row;
    std::unique_ptr<Staging> staging;
  };

  std::unique_ptr<Staging> make() const;

  Devices& devices_;
  const DeviceAccess& access_;
  const size_t most_;
  std::unique_ptr<Staging> collectives_;
  std::vector<Lane> messages_;
};

}  // namespace hccl_like

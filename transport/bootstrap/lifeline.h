#pragma once
// Makes the lifeline of a wire: the connector's part. watched_wire.h says what it is for.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "transport/bootstrap/connector.h"
#include "transport/network/process_record.h"
#include "transport/security/identity.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// Which of the connections between two processes it is. Rails have smaller numbers.
inline constexpr size_t kLifelineRail = 99;

// Under this name, which no transport can have, a record's `ends` have the port for lifelines, as
// text.
inline constexpr const char* kLifelineEnd = "(lifeline)";
// 0 where the process takes none.
uint16_t lifeline_port(const ProcessRecord& record);

// Used by one thread at a time; nothing blocks.
class LifelineDialer {
 public:
  // Identity and poller must outlive it.
  LifelineDialer(const Identity& self, Identity target, std::vector<Way> ways, Poller& poller)
      : target_(std::move(target)),
        connector_(self, target_, std::move(ways), poller, kLifelineRail) {}

  // Goes on; true once there is a socket, to be taken once.
  bool step() { return connector_.step(); }
  Fd take() { return connector_.take(); }
  // What was tried and why it failed, on one line.
  std::string report() const { return connector_.report(); }
  Deadline next_timer() const { return connector_.next_timer(); }

 private:
  const Identity target_;
  Connector connector_;
};

}  // namespace hccl_like

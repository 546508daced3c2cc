#pragma once
// Makes the lifeline of a wire (watched_wire.h), at the connector's end.
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

// The connection index of lifelines. Rails have smaller numbers.
inline constexpr size_t kLifelineRail = 99;

// The key in a record's `ends` for the lifeline port, as text. No transport can have this name.
inline constexpr const char* kLifelineEnd = "(lifeline)";
// 0 if the process accepts no lifelines.
uint16_t lifeline_port(const ProcessRecord& record);
// The port on which the process accepts connections of tcp, or else lifelines; 0: none.
uint16_t listening_port(const ProcessRecord& record);

// Used by one thread at a time; nothing blocks.
class LifelineDialer {
 public:
  // Identity and poller must outlive this object.
  LifelineDialer(const Identity& self, Identity target, std::vector<Way> ways, Poller& poller)
      : target_(std::move(target)),
        connector_(self, target_, std::move(ways), poller, kLifelineRail) {}

  // Makes progress; true once the socket is ready. Take the socket once.
  bool step() { return connector_.step(); }
  Fd take() { return connector_.take(); }
  // Whether all addresses of the peer refuse it.
  bool nobody_listens() const { return connector_.nobody_listens(); }
  std::string report() const { return connector_.report(); }
  Deadline next_timer() const { return connector_.next_timer(); }

 private:
  const Identity target_;
  Connector connector_;
};

}  // namespace hccl_like

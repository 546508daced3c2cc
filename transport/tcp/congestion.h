#pragma once
// Selects the congestion control: half or full bandwidth on a short network.
#include <string>

namespace hccl_like {

// The value of HCCL_LIKE_TCP_CONGESTION, applied to sockets. A value, immutable.
//
// "auto" replaces the system's congestion control by reno for near peers if the system's is one for
// wide-area networks: bbr paces packets by an estimate that is half of the bandwidth of a CPU-bound
// network, and cubic leaves slow start at the first queue. Reno grows as fast as cubic at these
// round-trip times. Far peers keep the system's. All other choices of an administrator, such as
// dctcp, stay.
class Congestion {
 public:
  // The system's.
  Congestion() = default;
  // "auto", "system" or a name that the kernel knows. Otherwise throws kMisuse with those names.
  explicit Congestion(const std::string& setting);

  // For a socket that is not connected yet, or a listener: accepted sockets inherit the setting.
  void prepare(int socket) const;
  // For a connection that has carried a few messages: restores the system's setting for a far peer.
  void settle(int socket) const;

 private:
  std::string wanted_;  // empty: the system's
  std::string system_;  // for far peers; empty: no difference
};

}  // namespace hccl_like

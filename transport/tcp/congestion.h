#pragma once
// Which congestion control the connections use. It decides between a half and all of the speed on a
// short network.
#include <string>

namespace hccl_like {

// The value of HCCL_LIKE_TCP_CONGESTION, applied to sockets. A value, immutable.
//
// "auto": where the system's is one of those that are made for wide-area networks (bbr paces its
// packets by an estimate that is half of what a processor-bound network carries; cubic leaves its
// slow start at the first queue), near peers get reno, which grows as fast as cubic does at such
// round-trip times. What an administrator has chosen for a data centre (dctcp and all others)
// stays, and so does the system's for peers that are far away.
class Congestion {
 public:
  // As the system has it.
  Congestion() = default;
  // "auto", "system", or a name that the kernel knows. Throws kMisuse, naming those there are, on
  // any other.
  explicit Congestion(const std::string& setting);

  // On a socket that has not connected yet, or that listens: what it accepts inherits.
  void prepare(int socket) const;
  // On a connection over which a few messages have gone: gives a far peer the system's again.
  void settle(int socket) const;

 private:
  std::string wanted_;  // empty: the system's
  std::string system_;  // what far peers get, empty: no difference
};

}  // namespace hccl_like

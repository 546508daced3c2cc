#pragma once
// A way to connect processes beside shared memory and TCP, as the mesh sees it: fabric, mpi, or a
// loaded module.
#include <memory>
#include <string>
#include <string_view>

#include "transport/wire/wire.h"

namespace hccl_like {

// The process at the other end.
struct FarEnd {
  std::string id;
  std::string hostname;  // for people
  bool same_host = false;
  std::string address;  // what its Transport::address() gave: bytes
};

// Of any two ends exactly one connects.
enum class WireSide { kConnector, kAcceptor };

// One process's end; made by opening it, closed by the destructor. Used by one thread at a time,
// together with its wires, which it outlives. Nothing blocks.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::string_view name() const = 0;
  // What peers need to know, published in the process's record; at most kLongestAddress bytes.
  virtual const std::string& address() const = 0;
  // Whether it makes sense to try. A peer that published no address of this transport is not asked
  // about.
  virtual bool can_reach(const FarEnd& peer) const = 0;
  // Both ends are asked at about the same time. The wire may be on its way still: it takes no bytes
  // then, and fails if it cannot get there. Throws an Exception if the attempt cannot even be made.
  virtual std::unique_ptr<Wire> connect(const FarEnd& peer, WireSide side) = 0;
  // How a wire of this transport gets to its peer, for logs; may be empty.
  virtual std::string route(const Wire& wire) const = 0;

  static constexpr size_t kLongestAddress = 2048;
};

}  // namespace hccl_like

#pragma once
// The mesh's interface to transports other than shared memory and TCP: fabric, mpi, loaded modules.
#include <memory>
#include <string>
#include <string_view>

#include "transport/wire/wire.h"

namespace hccl_like {

struct FarEnd {
  std::string id;
  std::string hostname;  // for logs
  bool same_host = false;
  std::string address;  // Transport::address() of the peer: bytes
};

// Of two ends, exactly one is the connector.
enum class WireSide { kConnector, kAcceptor };

// One process's endpoint. Constructing opens it, destroying closes it. Used by one thread at a
// time, together with its wires. Must outlive its wires. No method blocks.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::string_view name() const = 0;
  // Published in the process's record for peers. At most kLongestAddress bytes.
  virtual const std::string& address() const = 0;
  // Whether an attempt makes sense. Called only for peers with an address of this transport.
  virtual bool can_reach(const FarEnd& peer) const = 0;
  // Both ends call this at about the same time. The connection may complete or fail later; until
  // then the wire accepts no bytes. Throws an Exception if the attempt cannot start.
  virtual std::unique_ptr<Wire> connect(const FarEnd& peer, WireSide side) = 0;
  // The network path of a wire of this transport, for logs. May be empty.
  virtual std::string route(Wire& wire) const = 0;

  static constexpr size_t kLongestAddress = 2048;
};

}  // namespace hccl_like

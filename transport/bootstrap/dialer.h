#pragma once
// Reaches one peer over the best transport that both ends accept, falling back from one to the
// next.
#include <memory>
#include <string>
#include <vector>

#include "transport/bootstrap/connector.h"
#include "transport/bootstrap/greeting.h"
#include "transport/bootstrap/lifeline.h"
#include "transport/bootstrap/rails.h"
#include "transport/bootstrap/wire_greeting.h"
#include "transport/network/address.h"
#include "transport/network/process_record.h"
#include "transport/same_host/commons.h"
#include "transport/shm/handshake.h"
#include "transport/tcp/tcp_wire.h"
#include "transport/wire/transport.h"
#include "transport/wire/watched_wire.h"
#include "transport/wire/wire.h"

namespace hccl_like {

// What this process has to offer and to connect with; shared by all its dialers, and outlives them.
struct LocalEnd {
  JobKey job;
  bool sealed = false;        // what goes over the network is encrypted
  bool require_auth = false;  // not without a secret between hosts
  Identity identity;
  std::vector<std::string> transports;  // best first
  std::vector<InterfaceAddress> addresses;
  TcpOptions tcp;
  RailOptions tcp_rails;
  size_t shm_ring_bytes = 0;
  std::shared_ptr<Commons> commons;                // null without shm
  std::vector<std::unique_ptr<Transport>> others;  // which it has beside shm and tcp
  std::string setbacks;  // which of config.transports could not be opened, and why
  // Null if there is none of this name.
  Transport* find(std::string_view name) const;
  // Of a connection, for logs.
  std::string tcp_name() const { return sealed ? "encrypted tcp" : "tcp"; }
  // What a peer must prove.
  Identity identity_of(const ProcessRecord& peer) const;
  // A wire over a connected socket. `*railed`: that part of it which will have further rails, or
  // null.
  std::unique_ptr<Wire> tcp_wire(Fd socket, Poller& poller, const std::string& peer,
                                 const Key& session, WireSide side, RailedWire** railed) const;
  // The wire as it is used: encrypted, where that is wanted.
  std::unique_ptr<Wire> sealed_wire(std::unique_ptr<Wire> wire, const Key& session, WireSide side,
                                    const std::string& peer) const;
  // The wire of one of the others, as it is used. `*watched`: that part of it which will have a
  // lifeline, or null.
  std::unique_ptr<Wire> other_wire(std::unique_ptr<Wire> wire, Poller& poller, const Key& session,
                                   WireSide side, const ProcessRecord& self,
                                   const ProcessRecord& peer, WatchedWire** watched) const;
};

// A wire and how it came about.
struct Dialed {
  std::unique_ptr<Wire> wire;
  std::string route;   // "shm", "tcp 10.0.0.5:41234 via eth0"
  std::string reason;  // "same host", "other host", "shm failed: ..."
  // Of a wire that will have further rails, else null; it is a part of `wire`.
  RailedWire* railed = nullptr;
  std::unique_ptr<RailDialer> rails{};  // at the end that makes them
  // Of a wire that is to have a lifeline, else null; it is a part of `wire`.
  WatchedWire* watched = nullptr;
  std::unique_ptr<LifelineDialer> lifeline{};  // at the end that makes it
};

// The transports that can join two processes, in our order: "shm" wants both to have a UNIX socket
// on one host, "tcp" wants both to listen, any other to have been opened by both and to think that
// it reaches the peer.
std::vector<std::string> common_transports(const LocalEnd& local, const ProcessRecord& self,
                                           const ProcessRecord& peer);
// A peer as a transport of this name sees it.
FarEnd far_end(const std::string& transport, const ProcessRecord& self, const ProcessRecord& peer);
// "10.0.0.1" -> "via eth0": by which interface a connected socket leaves; empty if that cannot be
// told.
std::string leaves_via(int socket, const std::vector<InterfaceAddress>& own);

// Used by one thread at a time; nothing blocks.
class Dialer {
 public:
  Dialer(const LocalEnd& local, const ProcessRecord& self, const ProcessRecord& peer,
         Poller& poller);

  // Goes on; true once there is a wire, to be taken once.
  bool step();
  Dialed take() { return std::move(dialed_); }
  // Whether the peer may take the connection for made already.
  bool is_committed() const { return shm_ || other_ || (connector_ && connector_->is_committed()); }
  // Whether nobody listens any more at any of the peer's addresses.
  bool is_refused() const { return connector_ && connector_->nobody_listens(); }
  // What was tried and why it failed, on one line.
  std::string report() const;
  Deadline next_timer() const;

 private:
  void begin_stage();
  void next_stage(const std::string& why);
  bool step_shm();
  bool step_other();
  bool on_connected();
  std::vector<Way> tcp_ways(uint16_t port, size_t rail) const;
  std::unique_ptr<RailDialer> rails_of(RailedWire& wire) const;
  std::string reason() const;
  std::string setbacks() const;

  const LocalEnd& local_;
  const ProcessRecord& self_;
  const ProcessRecord& peer_;
  const Identity target_;
  const bool same_host_;
  Poller& poller_;

  std::vector<std::string> stages_;  // transports, best first
  size_t stage_ = 0;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<ShmHandshake> shm_;
  std::unique_ptr<WireGreeting> other_;
  Deadline other_backoff_ = Deadline::never();
  std::vector<std::string> setbacks_;  // by stage: why it was given up, if it was
  Deadline::Clock::time_point resume_at_{};
  Dialed dialed_;
};

}  // namespace hccl_like

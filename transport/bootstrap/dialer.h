#pragma once
// Connects to one peer over the best transport that both ends accept; falls back to the next one.
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

// This process's settings and resources for connecting. All its dialers share it; it outlives them.
struct LocalEnd {
  JobKey job;
  bool sealed = false;        // encrypt traffic between hosts
  bool require_auth = false;  // refuse other hosts if the job has no secret
  Identity identity;
  std::vector<std::string> transports;  // best first
  std::vector<InterfaceAddress> addresses;
  TcpOptions tcp;
  RailOptions tcp_rails;
  size_t shm_ring_bytes = 0;
  std::shared_ptr<Commons> commons;                // null without shm
  std::vector<std::unique_ptr<Transport>> others;  // besides shm and tcp
  std::string setbacks;  // the transports of the settings that failed to open, and why
  // Null if there is no transport of this name.
  Transport* find(std::string_view name) const;
  std::string tcp_name() const { return sealed ? "encrypted tcp" : "tcp"; }
  // The identity that `peer` must prove.
  Identity identity_of(const ProcessRecord& peer) const;
  // Connections within a host are not replaced: only their processes end them.
  TcpOptions tcp_to(const ProcessRecord& self, const ProcessRecord& peer) const;
  // Sets `*railed` to the part of the wire that has the connections.
  std::unique_ptr<Wire> tcp_wire(Fd socket, Poller& poller, const TcpOptions& options,
                                 const std::string& peer, const Key& session, WireSide side,
                                 RailedWire** railed) const;
  // The peer's addresses in the order in which one rail tries them.
  std::vector<Way> tcp_ways(const ProcessRecord& self, const ProcessRecord& peer, uint16_t port,
                            size_t rail) const;
  // `wire`, encrypted if `sealed`.
  std::unique_ptr<Wire> sealed_wire(std::unique_ptr<Wire> wire, const Key& session, WireSide side,
                                    const std::string& peer) const;
  // Makes the lifeline of a wire of `others`, at the connector's end.
  std::unique_ptr<LifelineDialer> lifeline_to(const ProcessRecord& self, const ProcessRecord& peer,
                                              Poller& poller) const;
  // A wire of `others`. Sets `*watched` to the part that gets a lifeline, or to null.
  std::unique_ptr<Wire> other_wire(std::unique_ptr<Wire> wire, Poller& poller, const Key& session,
                                   WireSide side, const ProcessRecord& self,
                                   const ProcessRecord& peer, WatchedWire** watched) const;
};

struct Dialed {
  std::unique_ptr<Wire> wire;
  std::string route;   // "shm", "tcp 10.0.0.5:41234 via eth0"
  std::string reason;  // "same host", "other host", "shm failed: ..."
  // Part of `wire`; null unless it is tcp. Its address, and its interface: "via eth0".
  RailedWire* railed = nullptr;
  std::string address{}, via{};
  WireSide side = WireSide::kConnector;
  // Part of `wire`; null if the wire gets no lifeline.
  WatchedWire* watched = nullptr;
  std::unique_ptr<LifelineDialer> lifeline{};  // null at the end that accepts it
};

// The transports that can connect two processes, in this process's order. "shm" requires a UNIX
// socket of both on one host. "tcp" requires listeners of both. Any other transport must be open in
// both, and `can_reach` the peer.
std::vector<std::string> common_transports(const LocalEnd& local, const ProcessRecord& self,
                                           const ProcessRecord& peer);
FarEnd far_end(const std::string& transport, const ProcessRecord& self, const ProcessRecord& peer);
// The outgoing interface of a connected socket, e.g. "via eth0"; empty if unknown.
std::string leaves_via(int socket, const std::vector<InterfaceAddress>& own);

// Used by one thread at a time; nothing blocks.
class Dialer {
 public:
  Dialer(const LocalEnd& local, const ProcessRecord& self, const ProcessRecord& peer,
         Poller& poller);

  // Makes progress; true once a wire is ready. Take the wire once.
  bool step();
  Dialed take() { return std::move(dialed_); }
  // Whether the peer may already consider the connection established.
  bool is_committed() const { return shm_ || other_ || (connector_ && connector_->is_committed()); }
  // Whether all addresses of the peer refuse connections.
  bool is_refused() const { return connector_ && connector_->nobody_listens(); }
  // The attempts and their errors, on one line.
  std::string report() const;
  Deadline next_timer() const;

 private:
  void begin_stage();
  void next_stage(const std::string& why);
  bool step_shm();
  bool step_other();
  bool on_connected();
  std::string reason() const;
  std::string setbacks() const;

  const LocalEnd& local_;
  const ProcessRecord& self_;
  const ProcessRecord& peer_;
  const Identity target_;
  const bool same_host_;
  Poller& poller_;

  std::vector<std::string> stages_;  // best first
  size_t stage_ = 0;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<ShmHandshake> shm_;
  std::unique_ptr<WireGreeting> other_;
  Deadline other_backoff_ = Deadline::never();
  std::vector<std::string> setbacks_;  // by stage: the reason for giving it up, if any
  Deadline::Clock::time_point resume_at_{};
  Dialed dialed_;
};

}  // namespace hccl_like

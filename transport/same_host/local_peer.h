#pragma once
// A process of this host that is known by its shared memory, without a connection.
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "core/base/fd.h"
#include "transport/message/message.h"
#include "transport/same_host/bell.h"
#include "transport/same_host/commons.h"
#include "transport/wire/poller.h"

namespace hccl_like {

struct ProcessRecord;

// Name of a process's bell, derived from its UNIX socket.
inline std::string bell_name(const std::string& unix_name) { return unix_name + ".bell"; }

// Used by one thread at a time, except where noted.
class LocalPeer final : private Pollable {
 public:
  // Maps the Commons of the process through /proc. Returns null if that is impossible: another PID
  // namespace or user, or no permission. `own` is this process's Commons. `own`, the bell and the
  // poller must outlive the local peer.
  static std::unique_ptr<LocalPeer> meet(const ProcessRecord& record, Commons& own,
                                         const Bell& bell, Poller& poller);
  ~LocalPeer() override;

  const PeerCommons& commons() const { return commons_; }
  // Wakes the peer's driver if it sleeps. Requires a prior full fence. Any thread.
  void nudge() const noexcept {
    if (commons_.asleep()) bell_.ring(place_);
  }

  // Publishes the abort to all local peers unless it was the last one published. Wakes this peer.
  void send_abort(uint64_t communicator, std::string_view reason);
  bool has_aborts() const { return commons_.given_up() != seen_; }
  std::optional<AbortNotice> take_abort();

  bool said_goodbye() const { return commons_.leaving(); }
  // Whether a death is already recorded, without a system call.
  bool died() const { return commons_.owner_died(); }
  // Checks whether the peer is gone, orderly or not. A zombie counts as gone, even if children hold
  // its descriptors open.
  bool look_for_end();
  // Lets the poller detect the end from now on, for one descriptor. False if already enabled.
  bool guard();
  bool gone() const { return gone_; }

 private:
  LocalPeer(PeerCommons commons, int pid, Bell::Place place, Commons& own, const Bell& bell,
            Poller& poller);
  void ready(unsigned events) override;

  PeerCommons commons_;
  const int pid_;
  const Bell::Place place_;
  Commons& own_;
  const Bell& bell_;
  Poller& poller_;
  Fd process_;  // a pidfd, while guarded
  uint32_t seen_;
  bool gone_ = false;
};

}  // namespace hccl_like

#pragma once
// A process of this host that is known without a connection: by the memory that it shows to all.
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

// Of a process's bell, beside its UNIX socket.
inline std::string bell_name(const std::string& unix_name) { return unix_name + ".bell"; }

// Used by one thread at a time, except where a method says otherwise.
class LocalPeer final : private Pollable {
 public:
  // Maps what the process shows, through /proc. Null if that cannot be done: another PID namespace,
  // another user, a process that may not be looked at. `own` is this process's; it, the bell and
  // the poller must outlive the local peer.
  static std::unique_ptr<LocalPeer> meet(const ProcessRecord& record, Commons& own,
                                         const Bell& bell, Poller& poller);
  ~LocalPeer() override;

  // Any thread.
  const PeerCommons& commons() const { return commons_; }
  // Wakes its driver if it sleeps. After a full fence; any thread.
  void nudge() const noexcept {
    if (commons_.asleep()) bell_.ring(place_);
  }

  // Tells all local peers at once, unless it was just done; wakes this one.
  void send_abort(uint64_t communicator, std::string_view reason);
  bool has_aborts() const { return commons_.given_up() != seen_; }
  std::optional<AbortNotice> take_abort();

  bool said_goodbye() const { return commons_.leaving(); }
  // Whether it is known to have died, without asking the system.
  bool died() const { return commons_.owner_died(); }
  // Looks whether it is gone, in order or not. A process of which a parent has not taken note
  // counts as gone, whatever children hold open.
  bool look_for_end();
  // From now on the poller notices its end by itself, for one descriptor.
  // True if it did not do so before.
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
  Fd process_;  // a pidfd, while it is guarded
  uint32_t seen_;
  bool gone_ = false;
};

}  // namespace hccl_like

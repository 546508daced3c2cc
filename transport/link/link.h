#pragma once
// Messages over a Wire: tags, matching, and flow control. One Link per peer process, shared by all
// communicators.
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "transport/message/message.h"
#include "transport/wire/wire.h"

namespace hccl_like {

class LocalPeer;
class PeerCommons;

struct LinkOptions {
  // Messages up to this size travel at once and wait at the receiver if nobody asked for them yet;
  // longer ones are announced and sent when the receiver is ready, so they are never buffered. The
  // two ends need not agree.
  size_t eager_bytes = 16 * 1024;
  // What progress() moves each way before it lets others have their turn.
  size_t turn_bytes = 256 * 1024;
  // The receiver stops reading from a peer whose early messages fill this much, unless it waits for
  // something of that peer: that may come behind them.
  size_t early_bytes_limit = 64 << 20;
  // Messages of so many bytes are copied out of what the wire shows, past the caches: what they
  // overwrite need not be read first.
  size_t least_past_caches = std::numeric_limits<size_t>::max();
};

// Used by one thread at a time. Nothing blocks, nothing calls back. A message is moved, and counted
// down, inside progress() only.
class Link {
 public:
  Link(std::unique_ptr<Wire> wire, LinkOptions options);
  // Without a wire yet. Messages that are posted wait for it, and `*wanted` is set. `expected`: the
  // transport that it will be. `local peer`: what is known of the peer without a wire, null where
  // nothing is.
  Link(std::string_view expected, LinkOptions options, std::unique_ptr<LocalPeer> local_peer,
       bool* wanted);
  ~Link();

  bool connected() const;
  // Whether a message waits for a wire, or somebody else wants one.
  bool needs_wire() const;
  void want_wire();
  // Once, unless it has failed.
  void attach(std::unique_ptr<Wire> wire, LinkOptions options);
  // It was given up before there was a wire.
  void fail(Error why);
  // Asks the system whether a local peer is gone without whom this link has no wire; failure()
  // tells.
  void look_for_end();
  // Null where the peer is known by its wire only.
  LocalPeer* local_peer() const;

  // After failure() a post is accepted and never done.
  void post(Send& send);
  void post(Recv& recv);
  // Takes back a `caller-driven` message of at most eager_bytes that need not be done here and now;
  // false, and it is free to be posted again, unless it is done: a send that the wire has begun to
  // take is done on return.
  bool withdraw(Send& send);
  bool withdraw(Recv& recv);
  // Forgets every posted message of a communicator without completing it; its memory is free on
  // return, for which a peer that copies to or from it is waited for, a second at most. A message
  // that was half sent is finished from a copy of what the wire had begun to take (so the peer
  // never sees wrong bytes), one that was half received is read and dropped, so that the other
  // communicators on this link go on. It is the end of this communicator on this link: whatever the
  // peer still sends for it is dropped, which is why a number must not be used twice.
  void cancel(uint64_t communicator);

  // Moves what can be moved, up to turn_bytes each way, so that other links get their turn.
  // True if anything was.
  bool progress();

  // The part of progress() that a message needs which was just posted: whatever else has arrived
  // stays on the wire, where the receives that will be posted next find it. To be mixed with
  // progress(), for the others' sake.
  bool progress(const Send& until);
  bool progress(const Recv& until);

  // True if a message with this tag has arrived or was announced and nobody asked for it yet;
  // *bytes is its size.
  bool arrived(const Tag& tag, size_t* bytes) const;

  // Tells the peer that this rank gave up a communicator. The reason is cut at 4096 bytes.
  void send_abort(uint64_t communicator, std::string_view reason);
  // Tells the peer which call this rank is in. False, and it is not told, without a wire.
  bool send_call(const CallNotice& call);
  // What the peer said so, one a call.
  std::optional<CallNotice> take_call();
  // Whether failure(), take_abort(), take_mismatch() or take_call() have something to say.
  bool has_news() const;
  // What the peer gave up, one notice a call.
  std::optional<AbortNotice> take_abort();
  // Says that no further message will come, for a clean end.
  void send_goodbye();
  // Whether the peer said so. It closes its end when it likes after that, which is a failure() only
  // in name: it concerns those who still have messages under way.
  bool peer_said_goodbye() const;
  // True when everything handed over has left this process, or never will because the link failed.
  bool flushed();
  // Whether some of it leaves only if progress() or flushed() is called again. Cheaper to ask than
  // flushed().
  bool owes();

  // Null while healthy. kPeerLost: the peer's process or host is gone, or it said something that
  // cannot be understood; kTimeout: it could not be reached. Sticky; no message posted here will be
  // done any more.
  const Error* failure() const;

  // A message's fingerprint or size differs from what this rank expects. The buffer was not
  // touched; the message will never be done, and its communicator is to be given up; the link and
  // the other communicators are not concerned. For a message longer than eager_bytes the sender
  // learns of it, too. One mismatch a call.
  struct Mismatch {
    Tag tag;
    uint64_t expected = 0, received = 0;  // fingerprints: this rank's, the peer's
    size_t expected_bytes = 0, received_bytes = 0;
    // Both ends agree, but the message is in a device's memory, and its only way has failed.
    bool unreachable = false;
    bool sends = false;  // this rank, which has heard how much is expected
  };
  std::optional<Mismatch> take_mismatch();
  // A message of the communicator's collectives that came although nobody asked for it and that is
  // of another call than the one which this rank made under its number, if there is one. `made`
  // gives that call's fingerprint, nothing if there was none. Slow: for a rank that waits.
  using Made = std::function<std::optional<uint64_t>(uint32_t sequence)>;
  std::optional<Mismatch> find_stray(uint64_t communicator, const Made& made) const;

  // As Wire::prepare_sleep: false if there is something to do already.
  bool prepare_sleep();
  void end_sleep();
  std::string_view transport() const;
  size_t eager_bytes() const;

  // Whether messages may lie in memory of devices at either end. Any thread.
  bool reaches_devices() const;
  // Makes such memory ready for messages; false if it cannot be. May take a while.
  bool prepare(const std::byte* data, size_t bytes);

  // As Wire's; any thread.
  const PeerCommons* commons() const;
  void nudge();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hccl_like

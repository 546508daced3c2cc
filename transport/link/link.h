#pragma once
// Messages over a Wire: tags, matching and flow control. One Link per peer, for all communicators.
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
class Traffic;

struct LinkOptions {
  // Messages up to this size are sent eagerly and buffered at the receiver if no receive is posted.
  // Longer messages are announced and never buffered. The two ends may use different values.
  size_t eager_bytes = 16 * 1024;
  // Bytes that progress() moves in each direction before other links get their turn.
  size_t turn_bytes = 256 * 1024;
  // When early messages of a peer fill this much, the receiver stops reading from that peer, unless
  // it waits for a message of the peer (which may follow them).
  size_t early_bytes_limit = 64 << 20;
  // Minimum size for non-temporal copies from the wire's view: the destination need not be read.
  size_t least_past_caches = std::numeric_limits<size_t>::max();
};

// Used by one thread at a time. No method blocks, there are no callbacks. Messages move and
// complete only inside progress().
class Link {
 public:
  Link(std::unique_ptr<Wire> wire, LinkOptions options);
  // No wire yet. Posted messages wait for one and set `*wanted`. `expected`: the transport of the
  // future wire. `local_peer`: knowledge about the peer without a wire, may be null.
  Link(std::string_view expected, LinkOptions options, std::unique_ptr<LocalPeer> local_peer,
       bool* wanted);
  ~Link();

  bool connected() const;
  bool needs_wire() const;
  void want_wire();
  // At most once, and only before a failure.
  void attach(std::unique_ptr<Wire> wire, LinkOptions options);
  // Marks the link as failed before a wire exists.
  void fail(Error why);
  // Asks the system whether a local peer without wire is gone. failure() has the result.
  void look_for_end();
  // Null if the peer is known only by its wire.
  LocalPeer* local_peer() const;

  // After failure(), a post is accepted and never completes.
  void post(Send& send);
  void post(Recv& recv);
  // Takes back a caller-driven message of at most eager_bytes. Returns false if withdrawn (it may
  // be posted again), true if done. A send that the wire has begun to accept is done on return.
  bool withdraw(Send& send);
  bool withdraw(Recv& recv);
  // Forgets all posted messages of a communicator without completing them. Their memory is free on
  // return: cancel() waits for a peer that copies to or from the memory, at most one second. A
  // partly sent message is completed from a copy, so that the peer never reads wrong bytes. A
  // partly received message is read and dropped. Other communicators on the link continue. Later
  // data of this communicator are dropped, so its number must never be reused.
  void cancel(uint64_t communicator);

  // Moves up to turn_bytes in each direction. True if anything moved.
  bool progress();

  // The part of progress() that a just-posted message needs. Other data stay on the wire, for
  // receives posted next. Callers must alternate with progress() for the other messages.
  bool progress(const Send& until);
  bool progress(const Recv& until);

  // True if a message with this tag arrived or was announced, without a receive. *bytes is its
  // size.
  bool arrived(const Tag& tag, size_t* bytes) const;

  // Tells the peer that this rank aborted a communicator. The reason is cut at 4096 bytes.
  void send_abort(uint64_t communicator, std::string_view reason);
  // Tells the peer which call this rank is in. Returns false, without effect, if there is no wire.
  bool send_call(const CallNotice& call);
  std::optional<CallNotice> take_call();
  // Whether failure(), take_abort(), take_mismatch() or take_call() has a result.
  bool has_news() const;
  // Communicators that the peer aborted, one notice per call of this function.
  std::optional<AbortNotice> take_abort();
  // Announces an orderly end: no further messages will follow.
  void send_goodbye();
  // Whether the peer announced its end. A later failure() concerns only ranks with messages in
  // flight.
  bool peer_said_goodbye() const;
  // True when all data have left this process, or the link has failed.
  bool flushed();
  // Whether data leave only if progress() or flushed() is called again. Cheaper than flushed().
  bool owes();

  // Null while healthy. Sticky; messages never complete afterwards. kPeerLost: the peer's process
  // or host is gone, or the peer violated the protocol. kTimeout: the peer could not be reached.
  const Error* failure() const;

  // A message has another fingerprint or size than this rank expects. The buffer is untouched, the
  // message never completes, and the caller must abort the communicator. Other communicators
  // continue. For messages longer than eager_bytes the sender gets the mismatch, too. One mismatch
  // per call.
  struct Mismatch {
    Tag tag;
    uint64_t expected = 0, received = 0;  // fingerprints: this rank's, the peer's
    size_t expected_bytes = 0, received_bytes = 0;
    // Fingerprints and sizes match, but the only path to the device memory has failed.
    bool unreachable = false;
    bool sends = false;  // reported at the sender, by the receiver's request
  };
  std::optional<Mismatch> take_mismatch();
  // Finds a collective message of the communicator that no receive expects and whose fingerprint
  // differs from that of this rank's call with the same number. `made` returns the fingerprint of
  // that call, or nothing if this rank made none. Slow: only for a rank that waits.
  using Made = std::function<std::optional<uint64_t>(uint32_t sequence)>;
  std::optional<Mismatch> find_stray(uint64_t communicator, const Made& made) const;

  // As Wire::prepare_sleep(): false if there is work.
  bool prepare_sleep();
  void end_sleep();
  std::string_view transport() const;
  size_t eager_bytes() const;

  // Counts the messages of this link, once it is told where.
  Traffic& traffic();

  // Whether either end may use device memory for messages. Any thread.
  bool reaches_devices() const;
  // Registers device memory for messages; false if not possible. May be slow.
  bool prepare(const std::byte* data, size_t bytes);

  // As in Wire; any thread.
  const PeerCommons* commons() const;
  void nudge();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hccl_like

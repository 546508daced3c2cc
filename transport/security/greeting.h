#pragma once
// Mutual authentication of two processes on a fresh connection; bytes only, no socket.
//
//   connector                                      acceptor
//   hello: own id, target id, rail, nonce, tag ->  verifies; closes silently on error
//   verifies; closes on error                  <-  answer: nonce, tag
//   commit: tag; this connection won the race  ->  verifies; keeps the connection unless this peer
//                                                  has one already
//   verifies; the wire exists                  <-  welcome: tag
//
// A tag is the HMAC, with the acceptor's door key, of the message's name and of all earlier bytes
// of this connection. Each end thus proves the key over the other's fresh nonce: a message from
// another connection, direction or position never verifies. A connector that knows an acceptor's
// key has the job's secret and has read that process's record. A hello alone can be replayed, so
// acceptors remember the nonces of verified hellos (heard_hellos.h). A verified hello only earns a
// place in the accept queue.
//
// The last two messages make both ends agree on one of several racing connections: a connector
// without a welcome has no link, and an acceptor without a commit has none.
//
// Every function that takes bytes accepts any bytes of any length and only reads them. Fuzz
// parse_hello, could_be_hello, Hosting and Calling.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "transport/security/identity.h"

namespace hccl_like {

namespace greeting {

inline constexpr size_t kFreshBytes = 32;
// The magic texts of hello and answer end with the protocol version.
inline constexpr std::string_view kHelloMagic = "hccl-like hello 02";
inline constexpr std::string_view kAnswerMagic = "hccl-like reply 02";
inline constexpr std::string_view kCommitMagic = "hccl-like commit";
inline constexpr std::string_view kWelcomeMagic = "hccl-like welcome";
static_assert(kProtocolVersion == 2, "change both magic texts, too");

inline constexpr size_t kRailDigits = 2;
inline constexpr size_t kHelloBytes =
    kHelloMagic.size() + 2 * kIdDigits + kRailDigits + kFreshBytes + kTagBytes;
inline constexpr size_t kAnswerBytes = kAnswerMagic.size() + kFreshBytes + kTagBytes;
inline constexpr size_t kCommitBytes = kCommitMagic.size() + kTagBytes;
inline constexpr size_t kWelcomeBytes = kWelcomeMagic.size() + kTagBytes;
static_assert(kHelloBytes + kCommitBytes <= 256, "what a stranger may make us read");

// The parts of a hello, views of its bytes; not authenticated.
struct Hello {
  std::string_view connector, target;  // ids
  size_t rail = 0;         // connection index between the two: 0 makes a wire, the others join it
  std::string_view fresh;  // the connector's nonce
  std::string_view untagged;  // all but the tag
  std::string_view tag;
};
// Empty if `bytes` are no hello of this version.
std::optional<Hello> parse_hello(std::string_view bytes);
// False once the first bytes rule out a hello of this version.
bool could_be_hello(std::string_view beginning);

// The connector's part. Call each method once, in this order; stop if one returns false.
class Calling {
 public:
  // `rail`: below 100.
  Calling(const Identity& self, const Identity& target, size_t rail = 0);
  std::string hello();
  bool believes_answer(std::string_view bytes);
  std::string commit();
  bool believes_welcome(std::string_view bytes) const;
  // After believes_answer(): a key known to the two ends of this connection only.
  Key session() const;

 private:
  const Key door_;
  const std::string self_, target_;
  const size_t rail_;
  std::string said_;    // by both ends, in order
  size_t opening_ = 0;  // bytes of hello and answer in `said_`
};

// The acceptor's part, likewise.
class Hosting {
 public:
  enum class Verdict {
    kBelieved,
    kNotOurs,       // no hello of this version
    kOtherProcess,  // for another process, or from this one
    kUnproved,      // its tag is wrong
  };

  explicit Hosting(const Identity& self);
  Verdict hear_hello(std::string_view bytes);
  // After kBelieved.
  const std::string& peer_id() const { return peer_id_; }
  size_t rail() const { return rail_; }
  const std::string& fresh() const { return fresh_; }
  std::string answer();
  bool believes_commit(std::string_view bytes);
  std::string welcome() const;
  Key session() const;  // after answer()

 private:
  const Key door_;
  const std::string self_;
  std::string peer_id_, fresh_, said_;
  size_t rail_ = 0;
  size_t opening_ = 0;
};

}  // namespace greeting
}  // namespace hccl_like

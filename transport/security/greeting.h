#pragma once
// How two processes make sure of each other, before either keeps anything for the other; bytes
// only, no socket.
//
//   connector                                        acceptor
//   hello: who I am, whom I want, which rail,  ->    compares; closes without a word if anything is
//   wrong
//          a fresh nonce, a tag
//   compares; closes if wrong                  <-    answer: a fresh nonce, a tag
//   commit: a tag; this connection has won     ->    compares; takes the connection, unless it has
//   one to this
//          the race                                  peer already
//   compares; the wire exists                  <-    welcome: a tag
//
// A tag is the HMAC, with the acceptor's door key, of the message's name and of everything said
// before on this connection. So each end proves the key to the other on words that the other has
// just drawn: what was said on another connection, by the other end, or in another place fits
// nowhere. A connector that knows the key of an acceptor has the job's secret and has read the
// record of that very process. A hello alone can be heard and said again; acceptors remember the
// nonces of those they believed, for as long as they live (acceptor.h), and a believed hello is
// worth a place at the door and no more.
//
// The last two messages also make both ends agree which of several racing connections is the one: a
// connector that sees no welcome has no link, an acceptor that saw no commit has none.
//
// Everything that takes bytes takes any bytes, of any length, and only reads them: fuzz
// parse_hello, could_be_hello, Hosting and Calling with them.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "transport/security/identity.h"

namespace hccl_like {

namespace greeting {

inline constexpr size_t kFreshBytes = 32;
// The magic texts of hello and answer end with the version of the protocol.
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

// The parts of a hello, views of its bytes; nothing of it is proved.
struct Hello {
  std::string_view connector, target;  // ids
  size_t rail = 0;  // which of the connections between the two: 0 makes a wire, the others join it
  std::string_view fresh;     // the connector's nonce
  std::string_view untagged;  // all but the tag
  std::string_view tag;
};
// Nothing if it is none of this version.
std::optional<Hello> parse_hello(std::string_view bytes);
// False as soon as the first bytes show that it will be no hello of this version.
bool could_be_hello(std::string_view beginning);

// The connector's part. Each method is called once, in this order, the next one only if the one
// before said true.
class Calling {
 public:
  // `rail`: below 100.
  Calling(const Identity& self, const Identity& target, size_t rail = 0);
  std::string hello();
  bool believes_answer(std::string_view bytes);
  std::string commit();
  bool believes_welcome(std::string_view bytes) const;
  // Known to both ends of this connection and nobody else. After believes_answer().
  Key session() const;

 private:
  const Key door_;
  const std::string self_, target_;
  const size_t rail_;
  std::string said_;    // by both, in order
  size_t opening_ = 0;  // how much of it hello and answer are
};

// The acceptor's part, likewise.
class Hosting {
 public:
  enum class Verdict {
    kBelieved,
    kNotOurs,       // no hello of this version
    kOtherProcess,  // wants another process, or is this one
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

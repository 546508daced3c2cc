#include "tests/fuzz/greetings.h"

#include <algorithm>

#include "transport/security/greeting.h"
#include "transport/security/job_key.h"

namespace hccl_like::fuzz {
namespace {

std::string_view text_of(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

const Identity& host() {
  static const Identity kHost =
      make_identity(JobKey(), std::string(kIdDigits, 'a'), std::string(kNonceDigits, 'b'));
  return kHost;
}

// Of two hosts alike, so that a tag of the one would be believed by the other.
const Identity& caller() {
  static const Identity kCaller =
      make_identity(JobKey(), std::string(kIdDigits, 'c'), std::string(kNonceDigits, 'd'));
  return kCaller;
}

// Made once with the key of `host`, as greeting::Calling makes it, but with a nonce that is the
// same each time.
std::string known_hello() {
  std::string text(greeting::kHelloMagic);
  text += caller().id + host().id + std::string(greeting::kRailDigits, '0') +
          std::string(greeting::kFreshBytes, 'f');
  return text + host().door.tag("hello", {text});
}

}  // namespace

void hello(Input input) {
  static const std::string kKnown = known_hello();
  const std::string_view said = text_of(input);
  const auto parts = greeting::parse_hello(said);
  require(!parts || said.size() == greeting::kHelloBytes, "a hello of another length");
  require(!parts || greeting::could_be_hello(said.substr(0, said.size() / 2)),
          "the beginning of a hello is taken for something else");
  greeting::Hosting hosting(host());
  const bool believed = hosting.hear_hello(said) == greeting::Hosting::Verdict::kBelieved;
  require(!believed || said == kKnown, "a hello that nobody with the key has said is believed");
}

std::vector<Bytes> hellos() {
  const std::string known = known_hello();
  require(greeting::Hosting(host()).hear_hello(known) == greeting::Hosting::Verdict::kBelieved,
          "this is no hello any more: make it as greeting.cc does");
  return {Bytes(known.begin(), known.end())};
}

void replies(Input input) {
  const std::string_view said = text_of(input);
  greeting::Calling calling(caller(), host());
  calling.hello();
  require(!calling.believes_answer(said),
          "an answer that nobody with the key has given is believed");
  static const std::string kKnown = known_hello();
  greeting::Hosting hosting(host());
  if (hosting.hear_hello(kKnown) != greeting::Hosting::Verdict::kBelieved) return;
  hosting.answer();
  require(!hosting.believes_commit(said), "a commit that nobody with the key has made is believed");
}

std::vector<Bytes> reply_seeds() {
  std::vector<Bytes> seeds;
  for (const std::string& text : {std::string(greeting::kAnswerMagic) + std::string(64, 'x'),
                                  std::string(greeting::kCommitMagic) + std::string(32, 'x')})
    seeds.emplace_back(text.begin(), text.end());
  return seeds;
}

void sealed(Input input) {
  static const JobKey kJob;
  static const std::string kKnown = proof::seal(kJob, "key", "value");
  const std::string_view stored = text_of(input);
  const proof::Opened read = proof::open(kJob, "key", stored);
  require(!read.proved || (stored == kKnown && read.value == "value"),
          "a forged value is believed");
  require(!proof::open(kJob, "another key", stored).proved, "a value that was moved is believed");
}

std::vector<Bytes> sealed_seeds() {
  const std::string known = proof::seal(JobKey(), "key", "value");
  return {Bytes(known.begin(), known.end())};
}

}  // namespace hccl_like::fuzz

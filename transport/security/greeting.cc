#include "transport/security/greeting.h"

#include <algorithm>

#include "transport/security/random.h"

namespace hccl_like::greeting {
namespace {

constexpr std::string_view kHello = "hello", kAnswer = "answer", kCommit = "commit",
                           kWelcome = "welcome", kSession = "session";

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string tagged(const Key& door, std::string_view name, std::string_view said) {
  return std::string(said) + door.tag(name, {said});
}

std::string closing(const Key& door, std::string_view name, std::string_view magic,
                    std::string_view said) {
  return std::string(magic) + door.tag(name, {said, magic});
}
bool closes(std::string_view bytes, const Key& door, std::string_view name, std::string_view magic,
            std::string_view said) {
  return bytes.starts_with(magic) && door.proves(bytes.substr(magic.size()), name, {said, magic});
}

}  // namespace

std::optional<Hello> parse_hello(std::string_view bytes) {
  if (bytes.size() != kHelloBytes || !bytes.starts_with(kHelloMagic)) return std::nullopt;
  Hello hello;
  hello.connector = bytes.substr(kHelloMagic.size(), kIdDigits);
  hello.target = bytes.substr(kHelloMagic.size() + kIdDigits, kIdDigits);
  const std::string_view rail = bytes.substr(kHelloMagic.size() + 2 * kIdDigits, kRailDigits);
  if (rail.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  hello.rail = static_cast<size_t>((rail[0] - '0') * 10 + (rail[1] - '0'));
  hello.fresh = bytes.substr(kHelloMagic.size() + 2 * kIdDigits + kRailDigits, kFreshBytes);
  hello.untagged = bytes.substr(0, kHelloBytes - kTagBytes);
  hello.tag = bytes.substr(kHelloBytes - kTagBytes);
  if (!is_hexadecimal(hello.connector) || !is_hexadecimal(hello.target)) return std::nullopt;
  return hello;
}

bool could_be_hello(std::string_view beginning) {
  const size_t known = std::min(beginning.size(), kHelloMagic.size());
  return beginning.substr(0, known) == kHelloMagic.substr(0, known);
}

Calling::Calling(const Identity& self, const Identity& target, size_t rail)
    : door_(target.door), self_(self.id), target_(target.id), rail_(rail) {}

std::string Calling::hello() {
  std::string text(kHelloMagic);
  text.append(self_).append(target_);
  text += {static_cast<char>('0' + rail_ / 10 % 10), static_cast<char>('0' + rail_ % 10)};
  text.append(random_bytes(kFreshBytes));
  return said_ = tagged(door_, kHello, text);
}

bool Calling::believes_answer(std::string_view bytes) {
  if (bytes.size() != kAnswerBytes || !bytes.starts_with(kAnswerMagic)) return false;
  const std::string_view untagged = bytes.substr(0, kAnswerBytes - kTagBytes);
  if (!door_.proves(bytes.substr(untagged.size()), kAnswer, {said_, untagged})) return false;
  said_.append(bytes);
  opening_ = said_.size();
  return true;
}

std::string Calling::commit() {
  const std::string text = closing(door_, kCommit, kCommitMagic, said_);
  said_ += text;
  return text;
}

bool Calling::believes_welcome(std::string_view bytes) const {
  return closes(bytes, door_, kWelcome, kWelcomeMagic, said_);
}

Key Calling::session() const {
  return door_.derive(kSession, {std::string_view(said_).substr(0, opening_)});
}

Hosting::Hosting(const Identity& self) : door_(self.door), self_(self.id) {}

Hosting::Verdict Hosting::hear_hello(std::string_view bytes) {
  const auto hello = parse_hello(bytes);
  if (!hello) return Verdict::kNotOurs;
  if (hello->target != self_ || hello->connector == self_) return Verdict::kOtherProcess;
  if (!door_.proves(hello->tag, kHello, {hello->untagged})) return Verdict::kUnproved;
  peer_id_ = hello->connector;
  rail_ = hello->rail;
  fresh_ = hello->fresh;
  said_ = bytes;
  return Verdict::kBelieved;
}

std::string Hosting::answer() {
  const std::string untagged = std::string(kAnswerMagic) + random_bytes(kFreshBytes);
  const std::string text = untagged + door_.tag(kAnswer, {said_, untagged});
  said_ += text;
  opening_ = said_.size();
  return text;
}

bool Hosting::believes_commit(std::string_view bytes) {
  if (!closes(bytes, door_, kCommit, kCommitMagic, said_)) return false;
  said_.append(bytes);
  return true;
}

std::string Hosting::welcome() const { return closing(door_, kWelcome, kWelcomeMagic, said_); }

Key Hosting::session() const {
  return door_.derive(kSession, {std::string_view(said_).substr(0, opening_)});
}

}  // namespace hccl_like::greeting

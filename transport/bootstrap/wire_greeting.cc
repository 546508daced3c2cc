#include "transport/bootstrap/wire_greeting.h"

#include <utility>

namespace hccl_like {

namespace {

std::variant<greeting::Calling, greeting::Hosting> voice(WireSide side, const Identity& self,
                                                         const Identity& target) {
  if (side == WireSide::kConnector) return greeting::Calling(self, target);
  return greeting::Hosting(self);
}

}  // namespace

WireGreeting::WireGreeting(std::unique_ptr<Wire> wire, WireSide side, const Identity& self,
                           const Identity& target)
    : wire_(std::move(wire)), side_(side), peer_id_(target.id), voice_(voice(side, self, target)) {
  if (side_ == WireSide::kConnector) say(std::get<greeting::Calling>(voice_).hello());
}

WireGreeting::State WireGreeting::step() {
  while (state_ == State::kUnderWay) {
    push();
    if (advance()) continue;
    if (wire_->failure() != nullptr) fail(wire_->failure()->message);
    break;
  }
  return state_;
}

std::string WireGreeting::cause() const {
  if (!cause_.empty()) return cause_;
  return side_ == WireSide::kConnector && heard_ == 0 ? "no answer" : "the greeting is not over";
}

void WireGreeting::push() {
  if (!outgoing_.empty()) {
    const ConstRegion region{reinterpret_cast<const std::byte*>(outgoing_.data()),
                             outgoing_.size()};
    outgoing_.erase(0, wire_->write({&region, 1}));
  }
  wire_->flush();
}

bool WireGreeting::take_text(size_t bytes, std::string& text) {
  const auto view = wire_->peek(bytes);
  if (view.size() < bytes) return false;
  text.assign(reinterpret_cast<const char*>(view.data()), bytes);
  wire_->release(bytes);
  ++heard_;
  return true;
}

void WireGreeting::say(std::string text) { outgoing_ += std::move(text); }

Key WireGreeting::session() const {
  return std::visit([](const auto& voice) { return voice.session(); }, voice_);
}

size_t WireGreeting::expected_bytes() const {
  const bool first = heard_ == 0;
  if (side_ == WireSide::kConnector)
    return first ? greeting::kAnswerBytes : greeting::kWelcomeBytes;
  return first ? greeting::kHelloBytes : greeting::kCommitBytes;
}

bool WireGreeting::advance() {
  // Hand the wire over only after it has taken the whole welcome.
  if (side_ == WireSide::kAcceptor && heard_ == 2) {
    if (outgoing_.empty()) state_ = State::kDone;
    return outgoing_.empty();
  }
  std::string text;
  if (!take_text(expected_bytes(), text)) return false;
  if (!hear(text))
    fail(side_ == WireSide::kConnector ? "another process answers there"
                                       : "it does not greet as the peer would");
  return true;
}

bool WireGreeting::hear(const std::string& text) {
  const bool first = heard_ == 1;
  if (auto* const calling = std::get_if<greeting::Calling>(&voice_)) {
    if (!(first ? calling->believes_answer(text) : calling->believes_welcome(text))) return false;
    if (first)
      say(calling->commit());
    else
      state_ = State::kDone;
    return true;
  }
  auto& hosting = std::get<greeting::Hosting>(voice_);
  const bool right = first ? hosting.hear_hello(text) == greeting::Hosting::Verdict::kBelieved &&
                                 hosting.peer_id() == peer_id_
                           : hosting.believes_commit(text);
  if (right) say(first ? hosting.answer() : hosting.welcome());
  return right;
}

void WireGreeting::fail(std::string cause) {
  cause_ = std::move(cause);
  state_ = State::kFailed;
}

}  // namespace hccl_like

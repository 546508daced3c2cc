#include "transport/wire_greeting.h"

#include <utility>

#include "transport/bootstrap_random.h"

namespace hccl_like {

WireGreeting::WireGreeting(std::unique_ptr<Wire> wire, WireSide side, const Identity& self,
                           const Identity& target)
    : wire_(std::move(wire)), side_(side), self_(self), target_(target) {
  if (side_ == WireSide::kConnector) say(greeting::hello(self_, target_));
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

// One message further, if it is there.
bool WireGreeting::advance() {
  std::string text;
  const bool first = heard_ == 0;
  if (side_ == WireSide::kConnector) {
    const std::string expected =
        first ? greeting::answer(target_) : std::string(greeting::kWelcome);
    if (!take_text(expected.size(), text)) return false;
    if (!equal_in_constant_time(text, expected)) {
      fail("another process answers there");
    } else if (first) {
      say(std::string(greeting::kCommit));
    } else {
      state_ = State::kDone;
    }
    return true;
  }
  const std::string expected =
      first ? greeting::hello(target_, self_) : std::string(greeting::kCommit);
  // The welcome must have left this process's hands before the wire is somebody else's.
  if (heard_ == 2) {
    if (outgoing_.empty()) state_ = State::kDone;
    return outgoing_.empty();
  }
  if (!take_text(expected.size(), text)) return false;
  if (!equal_in_constant_time(text, expected)) {
    fail("it does not greet as the peer would");
  } else {
    say(first ? greeting::answer(self_) : std::string(greeting::kWelcome));
  }
  return true;
}

void WireGreeting::fail(std::string cause) {
  cause_ = std::move(cause);
  state_ = State::kFailed;
}

}  // namespace hccl_like

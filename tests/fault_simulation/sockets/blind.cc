#include "tests/fault_simulation/sockets/blind.h"

#include <algorithm>
#include <utility>

#include "transport/mesh/transports.h"
#include "transport/testing/read_shown.h"

namespace hccl_like {
namespace fault_simulation {
namespace {

constexpr size_t kCapacity = 4096;  // as much as a peek may want

void ring(int doorbell) {
  if (doorbell >= 0) Poller::ring(doorbell);
}

class BlindWire final : public Wire {
 public:
  BlindWire(std::string self, std::string peer, WireSide side, Poller& poller)
      : Wire("blind"), self_(std::move(self)), peer_(std::move(peer)), poller_(poller) {
    if (side == WireSide::kConnector) take(++the_blind_net->attempts(self_, peer_), self_, peer_);
  }
  ~BlindWire() override {
    if (in_) in_->reader = out_->writer = -1;
  }

  size_t write(std::span<const ConstRegion> pieces) override {
    if (!bound()) return 0;
    std::string bytes;
    for (const ConstRegion& piece : pieces)
      bytes.append(reinterpret_cast<const char*>(piece.data), piece.bytes);
    bytes.resize(std::min(bytes.size(), out_->room()));
    const size_t taken = bytes.size();
    if (taken > 0) the_blind_net->send(self_, peer_, out_, std::move(bytes));
    return taken;
  }
  std::span<const std::byte> peek(size_t want) override {
    want_ = want;
    if (!bound()) return {};
    return {reinterpret_cast<const std::byte*>(in_->bytes.data()) + in_->head, in_->unread()};
  }
  void release(size_t bytes) override {
    if (bytes == 0 || !bound()) return;
    in_->head += std::min(bytes, in_->unread());
    if (in_->unread() == 0) {
      in_->bytes.clear();
      in_->head = 0;
    }
    ring(in_->writer);
  }
  size_t read(std::span<std::byte> into) override { return read_shown(*this, into); }
  const Error* failure() const override { return nullptr; }
  bool flush() override { return true; }
  bool prepare_sleep(WakeFor wake) override {
    if (!bound()) return true;
    return !(wake.bytes && in_->unread() >= want_) && !(wake.space && out_->room() > 0);
  }
  void end_sleep() override {}

 private:
  // An end that accepts has a wire once the other one has begun it.
  bool bound() {
    if (in_) return true;
    if (const int attempt = the_blind_net->attempts(peer_, self_); attempt > 0)
      take(attempt, peer_, self_);
    return in_ != nullptr;
  }
  void take(int attempt, const std::string& connector, const std::string& acceptor) {
    const auto there = the_blind_net->way(connector, acceptor, attempt);
    const auto back = the_blind_net->way(acceptor, connector, attempt);
    in_ = connector == self_ ? back : there;
    out_ = connector == self_ ? there : back;
    in_->reader = out_->writer = poller_.doorbell();
  }

  const std::string self_, peer_;
  Poller& poller_;
  std::shared_ptr<BlindNet::Way> in_, out_;
  size_t want_ = 1;
};

}  // namespace

size_t BlindNet::Way::room() const {
  const size_t used = under_way + unread();
  return used < kCapacity ? kCapacity - used : 0;
}

// A way belongs to the connector's attempt, whichever direction it is.
std::shared_ptr<BlindNet::Way> BlindNet::way(const std::string& from, const std::string& to,
                                             int attempt) {
  auto& found = ways_[{from, to, attempt}];
  if (!found) found = std::make_shared<Way>();
  return found;
}

void BlindNet::send(const std::string& from, const std::string& to, std::shared_ptr<Way> way,
                    std::string bytes) {
  if (network_.current_is_dead()) return;
  way->under_way += bytes.size();
  way->last_at = std::max(way->last_at, now + network_.random.between(kMicrosecond, kMillisecond));
  network_.at(way->last_at, [this, sender = processes_.at(from), receiver = processes_.at(to), way,
                             text = std::move(bytes)] { deliver(sender, receiver, way, text); });
}

// Sends bytes that a silence swallowed again at its end. A process that has ended receives nothing,
// and its peer gets no notice.
void BlindNet::deliver(int from, int to, const std::shared_ptr<Way>& way,
                       const std::string& bytes) {
  const Time until = network_.silent_until(network_.host_of(from), network_.host_of(to));
  if (until > now) {
    if (until >= kForEver) return;
    network_.at(until, [this, from, to, way, bytes] { deliver(from, to, way, bytes); });
    return;
  }
  if (!network_.alive(to)) return;
  way->under_way -= bytes.size();
  way->bytes += bytes;
  ring(way->reader);
}

BlindTransport::BlindTransport(std::string self, Poller& poller)
    : self_(std::move(self)), poller_(poller) {
  the_blind_net->join(self_, the_network->current());
}

std::unique_ptr<Wire> BlindTransport::connect(const FarEnd& peer, WireSide side) {
  return std::make_unique<BlindWire>(self_, peer.id, side, poller_);
}

}  // namespace fault_simulation

// Instead of the one that opens libraries.
OpenTransports open_transports(const Config& config, const ModulePaths&, const std::string& self_id,
                               Poller& poller) {
  OpenTransports result;
  if (std::ranges::count(config.transports, "blind") > 0)
    result.open.push_back(std::make_unique<fault_simulation::BlindTransport>(self_id, poller));
  return result;
}

}  // namespace hccl_like

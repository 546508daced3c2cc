#pragma once
// A transport that moves bytes between the processes of a simulated job and notices nothing else:
// what lifelines are for.
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "tests/fault_simulation/sockets/network.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"

namespace hccl_like::fault_simulation {

// State that the ends of all such wires share.
class BlindNet {
 public:
  explicit BlindNet(Network& network) : network_(network) {}

  // One direction of a wire.
  struct Way {
    std::string bytes;  // that have arrived, from `head` on
    size_t head = 0;
    size_t under_way = 0;
    Time last_at = 0;
    int reader = -1, writer = -1;  // doorbells of those that have an end of it

    size_t unread() const { return bytes.size() - head; }
    size_t room() const;
  };

  void join(const std::string& id, int process) { processes_[id] = process; }
  // How often the process has begun a wire to the other one. An end that accepts takes the last of
  // them.
  int& attempts(const std::string& from, const std::string& to) { return attempts_[{from, to}]; }
  std::shared_ptr<Way> way(const std::string& from, const std::string& to, int attempt);
  void send(const std::string& from, const std::string& to, std::shared_ptr<Way> way,
            std::string bytes);

 private:
  void deliver(int from, int to, const std::shared_ptr<Way>& way, const std::string& bytes);

  Network& network_;
  std::map<std::string, int> processes_;
  std::map<std::pair<std::string, std::string>, int> attempts_;
  std::map<std::tuple<std::string, std::string, int>, std::shared_ptr<Way>> ways_;
};

inline BlindNet* the_blind_net = nullptr;

class BlindTransport final : public Transport {
 public:
  BlindTransport(std::string self, Poller& poller);
  std::string_view name() const override { return "blind"; }
  const std::string& address() const override { return self_; }
  bool can_reach(const FarEnd&) const override { return true; }
  std::unique_ptr<Wire> connect(const FarEnd& peer, WireSide side) override;
  std::string route(Wire&) const override { return ""; }

 private:
  const std::string self_;
  Poller& poller_;
};

}  // namespace hccl_like::fault_simulation

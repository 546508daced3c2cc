#pragma once
// A Transport backed by a module's table.
#include <memory>
#include <string>
#include <unordered_map>

#include "transport/module.h"
#include "transport/wire/poller.h"
#include "transport/wire/transport.h"

namespace hccl_like {

class LoadedTransport final : public Transport {
 public:
  // Opens the module's end. The table must be complete (module_library.h) and the poller must
  // outlive this object. Throws kUnsupported with the module's error.
  LoadedTransport(const hct_api& api, const std::string& self_id, Poller& poller);
  ~LoadedTransport() override;

  std::string_view name() const override { return name_; }
  const std::string& address() const override { return address_; }
  bool can_reach(const FarEnd& peer) const override;
  std::unique_ptr<Wire> connect(const FarEnd& peer, WireSide side) override;
  std::string route(Wire& wire) const override;

 private:
  struct Watched final : Pollable {
    void ready(unsigned events) override { function(argument, events); }
    void (*function)(void*, uint32_t) = nullptr;
    void* argument = nullptr;
  };

  static int watch(void* context, int fd, uint32_t events, void (*ready)(void*, uint32_t),
                   void* argument) noexcept;
  static void forget(void* context, int fd) noexcept;
  static void ring(void* context) noexcept;
  static void nap(void* context, int begin) noexcept;
  std::string reason() const;

  const hct_api api_;
  const std::string name_;
  Poller& poller_;
  hct_host host_{};
  std::unordered_map<int, std::unique_ptr<Watched>> watched_;
  hct_end* end_ = nullptr;
  std::string address_;
};

}  // namespace hccl_like

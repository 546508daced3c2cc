#pragma once
// A caller-driven message between local peers: it needs no operation.
#include <variant>

#include "collectives/engine/operation.h"
#include "transport/link/link.h"

namespace hccl_like {

// Pinned in memory while in flight.
struct CallerMessage {
  const Call* call = nullptr;  // borrowed, with its memory
  Link* link = nullptr;
  std::variant<Send, Recv> message;

  Message& common() {
    return std::visit([](auto& one) -> Message& { return one; }, message);
  }
  bool done() { return common().done; }
  void post() {
    std::visit([&](auto& one) { link->post(one); }, message);
  }
  // Progresses only this message.
  bool progress() {
    return std::visit([&](auto& one) { return link->progress(one); }, message);
  }
  bool withdraw() {
    return std::visit([&](auto& one) { return link->withdraw(one); }, message);
  }
};

}  // namespace hccl_like

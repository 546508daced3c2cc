#pragma once
// A message between two ranks of a host that needs no operation: its caller's thread moves it.
#include <variant>

#include "collectives/engine/operation.h"
#include "transport/link/link.h"

namespace hccl_like {

// Pinned in memory while it passes.
struct CallerMessage {
  const Call* call = nullptr;  // borrowed, with the memory that it names
  Link* link = nullptr;
  std::variant<Send, Recv> message;

  Message& common() {
    return std::visit([](auto& one) -> Message& { return one; }, message);
  }
  bool done() { return common().done; }
  void post() {
    std::visit([&](auto& one) { link->post(one); }, message);
  }
  // What the message needs, and no more.
  bool progress() {
    return std::visit([&](auto& one) { return link->progress(one); }, message);
  }
  bool withdraw() {
    return std::visit([&](auto& one) { return link->withdraw(one); }, message);
  }
};

}  // namespace hccl_like

#pragma once
// Ranks of one host that know each other without a connection: by the memory that each shows, and
// by bells.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/link/link.h"
#include "transport/same_host/bell.h"
#include "transport/same_host/commons.h"
#include "transport/wire/poller.h"

namespace hccl_like::model {

// A test makes the memory of the local peers once. Each execution resets it.
class ModelledLocalPeers {
 public:
  // In an execution, what lies in the memory that they show: room for so many words of each reason.
  static constexpr size_t kReasonBytes = 16;

  explicit ModelledLocalPeers(size_t ranks);
  // To be called in the scenario: nobody has met anybody.
  void begin_execution();
  // After that; null for itself.
  std::unique_ptr<Link> meet(size_t self, size_t peer);

  Commons& commons(size_t rank) { return people_[rank]->commons; }
  Poller& poller(size_t rank) { return people_[rank]->poller; }
  // As the kernel does when the process dies: marks what it held, and wakes those who watch it.
  void die(size_t rank);

 private:
  struct Person {
    explicit Person(size_t rank);

    const std::string name;
    Poller poller;
    Bell bell;
    Commons commons;
    std::span<std::byte> memory;  // of commons
    LifeWord* life = nullptr;
  };

  std::vector<std::unique_ptr<Person>> people_;
};

}  // namespace hccl_like::model

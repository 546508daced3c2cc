#pragma once
// Ranks of one host as they are connected in earnest: shared memory, rings, doorbells, commons.
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/memory/mapping.h"
#include "transport/link/link.h"
#include "transport/same_host/commons.h"
#include "transport/wire/poller.h"

namespace hccl_like::model {

// The bell behind a doorbell, by descriptor; of the execution under way.
std::map<int, size_t>& bells();

// All that a process shows, as it maps it itself.
std::span<std::byte> writable(Commons& commons);
// The life word in that: given its place, as is the word that tells who leaves. Nobody has died or
// left.
LifeWord& begin_life(std::span<std::byte> commons);

// The pollers of the ranks, and a link between any two. Made once: for each execution what they
// share is made anew.
class ModelledHost {
 public:
  ModelledHost(size_t ranks, const std::vector<const Commons*>& shown);
  // To be called in the scenario.
  void begin_execution();

  Poller& poller(size_t rank) { return *pollers_[rank]; }
  // By rank, null for itself.
  const std::vector<Link*>& links(size_t rank) const { return by_rank_[rank]; }

 private:
  void connect(size_t first, size_t second, const std::vector<const Commons*>& shown);

  std::vector<std::unique_ptr<Poller>> pollers_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::vector<Link*>> by_rank_;
  std::vector<Mapping> indices_;               // of all rings
  std::vector<std::pair<int, size_t>> rings_;  // the copies of doorbells, and whose they are
};

}  // namespace hccl_like::model

#pragma once
// The hosts of a group's ranks.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/topology/crossings.h"

namespace hccl_like {

// Immutable and cheap to copy. Hosts are numbered by their first ranks, so all ranks with the same
// grouping use the same numbers.
class Hosts {
 public:
  // All ranks on one host.
  Hosts(int ranks) : Hosts(even(1, ranks)) {}  // NOLINT(google-explicit-constructor)
  // Rank r is on host r / ranks_per_host.
  static Hosts even(int hosts, int ranks_per_host);
  static Hosts one_rank_each(int ranks) { return even(ranks, 1); }
  // By rank: any number that identifies the host.
  static Hosts of(std::span<const int> host_by_rank);

  int size() const { return static_cast<int>(places_->size()); }
  int count() const { return static_cast<int>(first_->size()) - 1; }
  int host(int rank) const { return (*places_)[static_cast<size_t>(rank)].host; }
  // The rank's index among the ranks of its host.
  int place(int rank) const { return (*places_)[static_cast<size_t>(rank)].place; }
  // The ranks of a host, ascending.
  std::span<const int> ranks(int host) const;
  int on(int host) const { return static_cast<int>(ranks(host).size()); }
  // Ranks on the fullest host.
  int most() const { return most_; }
  // True if there are several hosts and at least one has several ranks.
  bool nested() const { return count() > 1 && most_ > 1; }

  const Crossings& crossings() const& { return *crossings_; }
  const Crossings& crossings() const&& = delete;  // would dangle

  // "4 hosts x 8 ranks", "3 hosts, 1 to 4 ranks each".
  std::string to_string() const;

  friend bool operator==(const Hosts& a, const Hosts& b);

 private:
  struct Place {
    int host;
    int place;
    friend bool operator==(const Place&, const Place&) = default;
  };
  Hosts() = default;

  std::shared_ptr<const std::vector<Place>> places_;  // by rank
  std::shared_ptr<const std::vector<int>> order_;     // ranks grouped by host
  std::shared_ptr<const std::vector<int>> first_;     // offset of each host in order_, then the end
  std::shared_ptr<const Crossings> crossings_;
  int most_ = 0;
};

}  // namespace hccl_like

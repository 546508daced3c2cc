#pragma once
// Which ranks of a group share a host: all that an algorithm may know of the machines.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/topology/crossings.h"

namespace hccl_like {

// Immutable, and cheap to copy. Hosts are numbered in the order of their first ranks, so ranks that
// see the same grouping number them alike, whatever names the hosts have.
class Hosts {
 public:
  // All ranks on one host; what a number of ranks means where nothing is said of hosts.
  Hosts(int ranks) : Hosts(even(1, ranks)) {}  // NOLINT(google-explicit-constructor)
  // Ranks fill the hosts in order: rank r is on host r / ranks_per_host.
  static Hosts even(int hosts, int ranks_per_host);
  static Hosts one_rank_each(int ranks) { return even(ranks, 1); }
  // By rank: any number that ranks of one host, and no others, share.
  static Hosts of(std::span<const int> host_by_rank);

  int size() const { return static_cast<int>(places_->size()); }
  int count() const { return static_cast<int>(first_->size()) - 1; }
  int host(int rank) const { return (*places_)[static_cast<size_t>(rank)].host; }
  // The rank's number among those of its host.
  int place(int rank) const { return (*places_)[static_cast<size_t>(rank)].place; }
  // The ranks of a host, in rising order.
  std::span<const int> ranks(int host) const;
  int on(int host) const { return static_cast<int>(ranks(host).size()); }
  // Ranks on the fullest host.
  int most() const { return most_; }
  // Whether there is anything to gain from knowing: several hosts, and one of them with several
  // ranks.
  bool nested() const { return count() > 1 && most_ > 1; }

  const Crossings& crossings() const& { return *crossings_; }
  const Crossings& crossings() const&& = delete;  // it would not outlive this

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
  std::shared_ptr<const std::vector<int>> order_;     // ranks, those of a host together
  std::shared_ptr<const std::vector<int>> first_;     // of each host's in it, and its end
  std::shared_ptr<const Crossings> crossings_;
  int most_ = 0;
};

}  // namespace hccl_like

#include "collectives/topology/hosts.h"

#include <algorithm>
#include <map>

namespace hccl_like {

Hosts Hosts::of(std::span<const int> host_by_rank) {
  std::map<int, int> numbers;
  std::vector<Place> places;
  std::vector<int> counts;
  for (const int name : host_by_rank) {
    const auto [known, fresh] = numbers.try_emplace(name, static_cast<int>(numbers.size()));
    if (fresh) counts.push_back(0);
    places.push_back({known->second, counts[static_cast<size_t>(known->second)]++});
  }
  std::vector<int> first{0};
  for (const int count : counts) first.push_back(first.back() + count);
  std::vector<int> order(places.size());
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto at = static_cast<size_t>(first[static_cast<size_t>(places[rank].host)]);
    order[at + static_cast<size_t>(places[rank].place)] = static_cast<int>(rank);
  }
  Hosts hosts;
  hosts.most_ = counts.empty() ? 0 : std::ranges::max(counts);
  hosts.places_ = std::make_shared<const std::vector<Place>>(std::move(places));
  hosts.order_ = std::make_shared<const std::vector<int>>(std::move(order));
  hosts.first_ = std::make_shared<const std::vector<int>>(std::move(first));
  hosts.crossings_ = std::make_shared<const Crossings>(Crossings::of(hosts));
  return hosts;
}

Hosts Hosts::even(int hosts, int ranks_per_host) {
  std::vector<int> host_by_rank;
  host_by_rank.reserve(static_cast<size_t>(hosts) * static_cast<size_t>(ranks_per_host));
  for (int host = 0; host < hosts; ++host)
    host_by_rank.insert(host_by_rank.end(), static_cast<size_t>(ranks_per_host), host);
  return of(host_by_rank);
}

std::span<const int> Hosts::ranks(int host) const {
  const auto begin = static_cast<size_t>((*first_)[static_cast<size_t>(host)]);
  const auto end = static_cast<size_t>((*first_)[static_cast<size_t>(host) + 1]);
  return std::span(*order_).subspan(begin, end - begin);
}

std::string Hosts::to_string() const {
  int least = most_;
  for (int host = 0; host < count(); ++host) least = std::min(least, on(host));
  const std::string hosts = std::to_string(count()) + (count() == 1 ? " host" : " hosts");
  if (least == most_)
    return hosts + " x " + std::to_string(most_) + (most_ == 1 ? " rank" : " ranks");
  return hosts + ", " + std::to_string(least) + " to " + std::to_string(most_) + " ranks each";
}

bool operator==(const Hosts& a, const Hosts& b) {
  return a.places_ == b.places_ || *a.places_ == *b.places_;
}

}  // namespace hccl_like

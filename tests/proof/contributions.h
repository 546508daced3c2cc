#pragma once
// Sets of ranks as numbers: which ranks' inputs a sum holds, each exactly once.
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hccl_like {

// Two sets are equal exactly if their numbers are. Runs of consecutive places, which may wrap
// around, are computed from their numbers; all other sets are kept in a table.
class Contributions {
 public:
  using Set = uint32_t;
  // Holds a rank twice, or memory that nobody wrote. No sum with it is right again, since sums only
  // add.
  static constexpr Set kWrong = 0;

  // At most 46,340 ranks.
  explicit Contributions(uint32_t ranks) : ranks_(ranks) {}

  Set one(uint32_t place) const { return run(place, 1); }
  Set all() const { return run(0, ranks_); }
  Set sum(Set a, Set b);

 private:
  // [begin, end) of places.
  using Pieces = std::vector<std::pair<uint32_t, uint32_t>>;
  static constexpr Set kTable = uint32_t{1} << 31;  // numbers from here on are in the table

  Set run(uint32_t begin, uint32_t places) const {
    return 1 + (places == ranks_ ? 0 : begin) * ranks_ + (places - 1);
  }
  uint32_t begin(Set set) const { return (set - 1) / ranks_; }
  uint32_t places(Set set) const { return (set - 1) % ranks_ + 1; }
  Pieces pieces(Set set) const;
  Set number(Pieces pieces);

  const uint32_t ranks_;
  std::vector<Pieces> table_;
  std::map<Pieces, Set> numbers_;
  std::unordered_map<uint64_t, Set> sums_;  // of pairs that are not both runs side by side
};

inline Contributions::Set Contributions::sum(Set a, Set b) {
  if (a == kWrong || b == kWrong) return kWrong;
  if ((a | b) < kTable) {
    const uint32_t begin_a = begin(a), begin_b = begin(b), of_a = places(a), of_b = places(b);
    const uint32_t to_b = begin_b >= begin_a ? begin_b - begin_a : begin_b + ranks_ - begin_a;
    const uint32_t to_a = to_b == 0 ? 0 : ranks_ - to_b;
    if (to_b < of_a || to_a < of_b) return kWrong;
    if (to_b == of_a) return run(begin_a, of_a + of_b);
    if (to_a == of_b) return run(begin_b, of_a + of_b);
  }
  const uint64_t pair = a < b ? uint64_t{a} << 32 | b : uint64_t{b} << 32 | a;
  if (const auto known = sums_.find(pair); known != sums_.end()) return known->second;
  Pieces both = pieces(a);
  const Pieces others = pieces(b);
  both.insert(both.end(), others.begin(), others.end());
  return sums_[pair] = number(std::move(both));
}

}  // namespace hccl_like

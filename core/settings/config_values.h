#pragma once
// The settings that have a syntax of their own, each a value with a parser that says what it wants.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hccl_like {

// Network interfaces to use, in NCCL's syntax: "eth,ib" names beginning with either; "=eth0"
// exactly that one;
// "^docker,lo" all but those beginning with either; "^=lo" all but exactly that one. Empty: all.
struct InterfaceFilter {
  std::vector<std::string> names;
  bool exclude = false;
  bool exact = false;

  static InterfaceFilter parse(std::string_view text);
  bool matches(std::string_view interface_name) const;
  std::string to_string() const;
  friend bool operator==(const InterfaceFilter&, const InterfaceFilter&) = default;
};

// When the ranks of a group are connected: each pair when a call first needs it, or all when the
// group is made.
enum class Connecting { kLazy, kEager };

// TCP ports lo..hi, both included. 0-0: any port that the system gives.
struct PortRange {
  uint16_t low = 0;
  uint16_t high = 0;

  static PortRange parse(std::string_view text);
  bool any() const noexcept { return low == 0; }
  std::string to_string() const;
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

// How many connections two ranks have, from 1 on.
struct RailCount {
  static constexpr uint64_t kMost = 16;
  uint64_t count = 1;

  static RailCount parse(std::string_view text);
  std::string to_string() const { return std::to_string(count); }
  friend bool operator==(const RailCount&, const RailCount&) = default;
};

// Algorithms that the user wants instead of the cost model's choice:
// "allreduce:ring;allgather:bruck".
struct ForcedAlgorithms {
  struct Choice {
    std::string collective;
    std::string algorithm;
    friend bool operator==(const Choice&, const Choice&) = default;
  };
  std::vector<Choice> choices;

  static ForcedAlgorithms parse(std::string_view text);
  // The algorithm for `collective`, empty if none is forced.
  std::string_view find(std::string_view collective) const noexcept;
  std::string to_string() const;
  friend bool operator==(const ForcedAlgorithms&, const ForcedAlgorithms&) = default;
};

// Files that go by a name: "toy=/opt/libtoy.so,other=/opt/libother.so".
struct NamedPaths {
  std::map<std::string, std::string> paths;

  static NamedPaths parse(std::string_view text);
  std::string to_string() const;
  friend bool operator==(const NamedPaths&, const NamedPaths&) = default;
};

// "4096", "64K", "1M", "2G" (powers of 1024). All parsers here throw kMisuse: "'1Q' is not a size;
// write ...".
uint64_t parse_bytes(std::string_view text);
// Digits only, at most `max`.
uint64_t parse_number(std::string_view text, uint64_t max);
// "a,b" -> {"a", "b"}; empty text -> {}. Empty parts are errors.
std::vector<std::string> parse_list(std::string_view text, char separator = ',');
std::string join(const std::vector<std::string>& parts, char separator = ',');

}  // namespace hccl_like

#pragma once
// Setting types with their own syntax and parser.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hccl_like {

// Network interfaces in NCCL's syntax: "eth,ib" prefixes; "=eth0" exact names; "^docker,lo" all but
// these prefixes; "^=lo" all but these names. Empty: all.
struct InterfaceFilter {
  std::vector<std::string> names;
  bool exclude = false;
  bool exact = false;

  static InterfaceFilter parse(std::string_view text);
  bool matches(std::string_view interface_name) const;
  std::string to_string() const;
  friend bool operator==(const InterfaceFilter&, const InterfaceFilter&) = default;
};

// Connect each pair at its first call, or all pairs at group creation.
enum class Connecting { kLazy, kEager };

// Form of floats in messages between hosts (docs/compression.md).
enum class Compression : uint8_t { kNone, kBf16, kMx8, kMx4 };
std::string_view name(Compression compression) noexcept;
// "none", "bf16", "mx8" or "mx4".
Compression parse_compression(std::string_view text);

// TCP ports low..high, inclusive. 0-0: any port.
struct PortRange {
  uint16_t low = 0;
  uint16_t high = 0;

  static PortRange parse(std::string_view text);
  bool any() const noexcept { return low == 0; }
  std::string to_string() const;
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

// Connections between two ranks, at least 1.
struct RailCount {
  static constexpr uint64_t kMost = 16;
  uint64_t count = 1;

  static RailCount parse(std::string_view text);
  std::string to_string() const { return std::to_string(count); }
  friend bool operator==(const RailCount&, const RailCount&) = default;
};

// Which calls of a group are looked at: "1/1000", every thousandth; "1", each; "0", none.
struct CallShare {
  uint32_t every = 0;  // 0: none

  static CallShare parse(std::string_view text);
  std::string to_string() const;
  friend bool operator==(const CallShare&, const CallShare&) = default;
};

// Where a process tells its counters: "9400", "10.0.0.5:9400", "[fd00::5]:9400", or a file that
// ends in ".prom". Empty: nowhere.
struct MetricsTarget {
  static constexpr std::string_view kFileEnding = ".prom";
  std::string address;  // IPv4 or IPv6, without a port
  uint16_t port = 0;    // of local rank 0
  std::string file;     // absolute path, instead of an address

  static MetricsTarget parse(std::string_view text);
  bool none() const noexcept { return port == 0 && file.empty(); }
  std::string to_string() const;
  friend bool operator==(const MetricsTarget&, const MetricsTarget&) = default;
};

// Forced algorithms: "allreduce:ring;allgather:bruck".
struct ForcedAlgorithms {
  struct Choice {
    std::string collective;
    std::string algorithm;
    friend bool operator==(const Choice&, const Choice&) = default;
  };
  std::vector<Choice> choices;

  static ForcedAlgorithms parse(std::string_view text);
  // Empty if none is forced for `collective`.
  std::string_view find(std::string_view collective) const noexcept;
  std::string to_string() const;
  friend bool operator==(const ForcedAlgorithms&, const ForcedAlgorithms&) = default;
};

// Named files: "toy=/opt/libtoy.so,other=/opt/libother.so".
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
// "a,b" -> {"a", "b"}; empty text -> {}. Throws on empty parts.
std::vector<std::string> parse_list(std::string_view text, char separator = ',');
std::string join(const std::vector<std::string>& parts, char separator = ',');

}  // namespace hccl_like

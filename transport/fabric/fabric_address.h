#pragma once
// The published address of a process's libfabric endpoints.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hccl_like {

struct FabricAddress {
  struct End {
    std::string network;  // the provider's name of the network
    std::string name;     // from fi_getname; binary
    friend bool operator==(const End&, const End&) = default;
  };
  std::string provider;
  bool reads_memory = false;
  bool takes_devices = false;  // device memory; only with reads_memory
  bool mends = false;          // kFabricVersionThatMends or newer
  std::vector<End> ends;       // the first one carries messages

  std::string pack() const;
  // Empty if `text` is malformed: it is untrusted.
  static std::optional<FabricAddress> parse(std::string_view text);
};

// Pairs the first endpoints, then further ones by network, in order; equal in both processes.
struct FabricPair {
  size_t own = 0, far = 0;
  friend bool operator==(const FabricPair&, const FabricPair&) = default;
};
std::vector<FabricPair> pair_ends(const FabricAddress& own, const FabricAddress& far);

}  // namespace hccl_like

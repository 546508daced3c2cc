#pragma once
// What a process publishes of its libfabric end-points.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hccl_like {

struct FabricAddress {
  struct End {
    std::string network;  // the provider's name for what it is connected to
    std::string name;     // as fi_getname gives it: bytes
    friend bool operator==(const End&, const End&) = default;
  };
  std::string provider;
  bool reads_memory = false;
  bool takes_devices = false;  // their memory; only beside reads_memory
  std::vector<End> ends;       // the first one carries messages

  std::string pack() const;
  // Nothing if it is not what pack() gives: it comes from another process.
  static std::optional<FabricAddress> parse(std::string_view text);
};

// Which of one process's ends meets which of another's: the first ones, and those further ones that
// are on one network, in order. Both processes find the same pairs.
struct FabricPair {
  size_t own = 0, far = 0;
  friend bool operator==(const FabricPair&, const FabricPair&) = default;
};
std::vector<FabricPair> pair_ends(const FabricAddress& own, const FabricAddress& far);

}  // namespace hccl_like

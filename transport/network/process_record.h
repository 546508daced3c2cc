#pragma once
// What a process tells its peers about itself through the store.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine/machine.h"

namespace hccl_like {

inline constexpr size_t kIdDigits = 32;
inline constexpr size_t kNonceDigits = 64;
inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr size_t kLongestRecord = 32 * 1024;

// What a process publishes about itself, once per group, under the group's prefix in the store.
struct ProcessRecord {
  std::string id;        // unique to this process's Mesh: random
  std::string nonce;     // random; whoever connects must know it
  std::string host;      // boot id and namespaces: equal means that shared memory can work
  std::string hostname;  // for people
  int64_t pid = 0;
  std::string unix_name;                    // abstract UNIX socket, empty without shm
  std::vector<std::string> addresses;       // "10.0.0.5", "fd00::5", best first
  uint16_t port = 0;                        // 0 without tcp
  std::optional<int> commons;               // the descriptor of its Commons
  std::optional<uint32_t> area;             // of it, for this group; its lease's name
  std::map<std::string, std::string> ends;  // its Transports' addresses, bytes, by their names
  // What it has set that all ranks must have alike, by name; a setting that is not there has its
  // default.
  std::map<std::string, std::string> settings;
  std::optional<Machine> machine;  // its host, if it is the first process there
  std::string serialize() const;
  static ProcessRecord parse(std::string_view text);  // throws a sentence on anything malformed
};

}  // namespace hccl_like

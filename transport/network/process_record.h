#pragma once
// The record that a process publishes for its peers in the store.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/machine/machine.h"

namespace hccl_like {

inline constexpr size_t kIdDigits = 32;
inline constexpr size_t kNonceDigits = 64;
inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr std::string_view kAnyDevice = "*";
inline constexpr size_t kLongestRecord = 32 * 1024;

// Published once per group, under the group's prefix in the store.
struct ProcessRecord {
  std::string id;        // random, unique to this process's Mesh
  std::string nonce;     // random; a connecting peer must present it
  std::string host;      // boot id and namespaces; equal if shared memory can work
  std::string hostname;  // for logs
  int64_t pid = 0;
  std::string unix_name;               // abstract UNIX socket, empty without shm
  std::vector<std::string> addresses;  // "10.0.0.5", "fd00::5", best first
  uint16_t port = 0;                   // 0 without tcp
  std::optional<int> commons;          // descriptor of its Commons
  std::optional<uint32_t> area;        // piece of its Commons for this group; also names the lease
  std::map<std::string, std::string> ends;  // Transport::address() (bytes) by transport name
  // Non-default settings, by name, that must be equal on all ranks.
  std::map<std::string, std::string> settings;
  // The accelerator whose tensors it may pass in this group; empty: none; kAnyDevice: not known.
  std::string device;
  std::optional<Machine> machine;  // of its host, if the process is the first there
  std::string serialize() const;
  // These throw a sentence if the record is malformed.
  static ProcessRecord parse(std::string_view text);
  static ProcessRecord from_json(const nlohmann::json& json);
};

}  // namespace hccl_like

#pragma once
// All settings. Read once and passed down: no other file reads the environment.
//
// A new setting is one member here and one row of the table in config.cc, from which
// docs/settings.md is generated. It needs a reason why the program cannot find the value itself.
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "core/base/secret.h"
#include "core/settings/config_values.h"

namespace hccl_like {

struct Setting {
  std::string_view name;           // the environment variable, "HCCL_LIKE_DEBUG"
  std::string_view default_value;  // in the variable's syntax
  std::string_view help;           // one sentence, with the unit
};

struct Config {
  LogLevel debug = LogLevel::kWarn;  // log level
  std::string debug_file;            // log file, %h host, %p process id; empty: standard error

  InterfaceFilter socket_ifname;                      // allowed network interfaces; empty: all
  PortRange port_range;                               // ports to listen on; default: any
  std::vector<std::string> transports{"shm", "tcp"};  // allowed transports, best first
  std::string mpi_library;           // path of the library for transport "mpi"; empty: search
  std::string fabric_library;        // the same for libfabric
  std::string fabric_provider;       // libfabric provider; empty: automatic
  uint32_t fabric_rails = 0;         // NICs, or networks; 0: all NICs, or one network
  bool fabric_device_memory = true;  // NICs may register device memory
  NamedPaths transport_modules;      // third-party transports
  NamedPaths device_plugins;         // override packaged plugins; Python reads it at import
  std::chrono::milliseconds connect_timeout{30'000};  // to find and connect to a peer
  Connecting connect = Connecting::kLazy;             // when ranks of a group connect
  uint32_t tree_ranks = 1024;  // groups of so many ranks meet by a tree of ranks; 0: none

  std::string secret_file;    // file with the secret shared by all processes of the job
  Secret secret;              // the secret itself, if no file is named
  bool require_auth = false;  // fail without a secret if ranks span hosts
  bool encrypt = false;       // encrypt network traffic

  bool mixed_devices = false;  // ranks of a group use tensors of different devices
  bool deterministic = false;
  Compression compression = Compression::kNone;  // of messages between hosts
  ForcedAlgorithms algo;                         // override the cost model
  std::string profile;                           // file of measured choices; empty: none
  uint64_t slice_bytes = 1 << 20;         // a payload larger than this runs in several slices
  uint32_t slice_window = 4;              // slices in flight at once
  uint64_t remote_slice_bytes = 4 << 20;  // the same between hosts
  uint64_t eager_bytes =
      512 << 10;  // a message up to this size is sent before the receiver asks for it

  uint64_t shm_eager_bytes = 256 << 10;  // the same between processes of one host
  uint64_t shm_ring_bytes = 2 << 20;     // ring buffer for each direction and peer
  bool board = true;                     // small same-host calls through the shared board
  bool direct = true;                    // large same-host calls without messages; needs the board
  uint64_t tcp_buffer_bytes = 0;         // socket buffers; 0: the system decides
  RailCount tcp_rails;                   // connections for each peer
  std::string tcp_congestion = "auto";   // congestion control, see transport/tcp/congestion.h

  uint32_t spins = 50;    // polls in a row before a waiting thread yields its core
  uint32_t yields = 200;  // yields in a row before it sleeps, see core/machine/backoff.h
  uint32_t threads = 0;   // maximum for a long pass over memory; 0: as many as cores are idle

  // torch compatibility patches to skip; read by Python before this library is loaded.
  std::string torch_compat;
  // Integrations to load, or 0 for none and no warning; read by Python likewise.
  std::string integrations;

  bool flight_stacks = false;             // record Python stacks in the flight recorder
  bool flight_dump = true;                // dump the flight recorder when a call fails
  std::string dump_signal;                // signal that triggers a dump; empty: none
  std::chrono::milliseconds report{600};  // time for ranks to exchange failure reports; 0: none
  MetricsTarget metrics;                  // where the counters are told; default: nowhere
  bool call_sites = false;                // also compare call sites across ranks
  bool nan_check = false;                 // search inputs for NaNs
  CallShare verify;                       // calls whose results are compared across ranks

  // Reads the HCCL_LIKE_ variables. Throws kMisuse, with the variable's name, on an invalid value.
  // Logs a warning for an unknown HCCL_LIKE_ name, once for each variable and process.
  static Config from_environment();

  // Non-default settings, by name, that must be equal on all ranks. Excludes the profile.
  std::map<std::string, std::string> common() const;

  // All settings as "name = value" lines; * marks non-default ones.
  std::string to_string() const;

  // Documentation of every setting, in a fixed order.
  static std::span<const Setting> settings();

  friend bool operator==(const Config&, const Config&) = default;
};

// from_environment() on a list of "NAME=value". Ignores other variables.
struct ParsedConfig {
  Config config;
  std::vector<std::string> warnings;  // a sentence each
};
ParsedConfig parse_config(std::span<const char* const> environment);

}  // namespace hccl_like

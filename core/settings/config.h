#pragma once
// Every setting there is. Read once, printable, passed down: nothing else in the project reads the
// environment.
//
// A new setting is one member here and one row of the table in config.cc; docs/settings.md comes
// from that table. It needs a reason why the program cannot know by itself.
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

// A setting as its documentation shows it.
struct Setting {
  std::string_view name;           // the environment's, "HCCL_LIKE_DEBUG"
  std::string_view default_value;  // as one would write it
  std::string_view help;           // one sentence, with the unit
};

struct Config {
  LogLevel debug = LogLevel::kWarn;  // what is logged
  std::string debug_file;            // where lines go, %h host, %p process; empty: standard error

  InterfaceFilter socket_ifname;  // network interfaces that may be used; empty: all
  PortRange port_range;           // ports to listen on; any if not given
  std::vector<std::string> transports{"shm", "tcp"};  // which may be used, best first
  std::string mpi_library;           // path of the MPI that transport "mpi" loads; empty: found
  std::string fabric_library;        // the same for libfabric
  std::string fabric_provider;       // of libfabric; empty: chosen
  uint32_t fabric_rails = 0;         // its cards, or networks; 0: all cards, or one network
  bool fabric_device_memory = true;  // its cards may be given memory of devices
  NamedPaths transport_modules;      // of transports that third parties made
  NamedPaths device_plugins;  // instead of what packages bring; read by Python, before this library
                              // is loaded
  std::chrono::milliseconds connect_timeout{30'000};  // to find and connect to a peer
  Connecting connect = Connecting::kLazy;             // when ranks of a group are connected

  std::string secret_file;    // whose content all processes of the job prove that they know
  Secret secret;              // the same, if no file is named
  bool require_auth = false;  // ranks of several hosts must have such a secret
  bool encrypt = false;       // what goes over the network

  ForcedAlgorithms algo;                // instead of the cost model's choice
  std::string profile;                  // a file of measured choices; empty: none
  uint64_t lap_bytes = 1 << 20;         // a payload larger than this runs in several laps
  uint32_t lap_window = 4;              // laps in flight at once
  uint64_t remote_lap_bytes = 4 << 20;  // the same between hosts
  uint64_t eager_bytes =
      512 << 10;  // a message up to this size is sent before the receiver asks for it

  uint64_t shm_eager_bytes = 256 << 10;  // the same between processes of one host
  uint64_t shm_ring_bytes = 2 << 20;     // ring buffer per direction and peer
  bool board = true;              // small calls of one host through memory that all its ranks see
  bool direct = true;             // large ones without messages; needs the board
  uint64_t tcp_buffer_bytes = 0;  // socket buffers; 0: the system decides
  RailCount tcp_rails;            // connections to a peer
  std::string tcp_congestion = "auto";  // congestion control, see transport/tcp/congestion.h

  uint32_t spins = 50;    // polls in a row before a waiting thread yields its core
  uint32_t yields = 200;  // yields in a row before it sleeps
  uint32_t threads = 0;   // at most, for one long pass over memory; 0: as cores are idle

  // Which mends of torch's Python are left out; read by Python, before this library is loaded.
  std::string torch_compat;

  bool flight_stacks = false;             // the flight recorder keeps Python stacks
  bool flight_dump = true;                // and is written down when a call fails
  std::string dump_signal;                // or at this signal; empty: none
  std::chrono::milliseconds report{600};  // for ranks to tell each other where they are; 0: none
  bool call_sites = false;                // the lines that make calls are compared, too
  bool nan_check = false;                 // inputs are searched for NaNs

  // Reads the HCCL_LIKE_ variables of this process. Throws kMisuse, naming the variable, on a value
  // that cannot be understood. Warns in the log, once per process and variable, about an unknown
  // HCCL_LIKE_ name.
  static Config from_environment();

  // Those settings, by name, that all ranks must have alike and that differ from their defaults
  // here. Not the profile, of which only the content matters.
  std::map<std::string, std::string> common() const;

  // All settings, name = value, one a line, those that differ from the default marked with *.
  std::string to_string() const;

  // The documentation of every setting, in a fixed order.
  static std::span<const Setting> settings();

  friend bool operator==(const Config&, const Config&) = default;
};

// What from_environment() does, on a list of "NAME=value". Other variables are ignored.
struct ParsedConfig {
  Config config;
  std::vector<std::string> warnings;  // a sentence each
};
ParsedConfig parse_config(std::span<const char* const> environment);

}  // namespace hccl_like

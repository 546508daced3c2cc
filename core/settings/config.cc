#include "core/settings/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {
namespace {

constexpr std::string_view kPrefix = "HCCL_LIKE_";

// One read/print pair for each member type.
void read(LogLevel& member, std::string_view text) {
  for (const LogLevel level : {LogLevel::kWarn, LogLevel::kInfo, LogLevel::kTrace}) {
    if (text == name(level)) {
      member = level;
      return;
    }
  }
  throw_misuse("'" + std::string(text) + "' is not a level; write WARN, INFO or TRACE");
}
void read(Connecting& member, std::string_view text) {
  if (text != "lazy" && text != "eager")
    throw_misuse("'" + std::string(text) + "' is not a way to connect; write lazy or eager");
  member = text == "lazy" ? Connecting::kLazy : Connecting::kEager;
}
void read(Compression& member, std::string_view text) { member = parse_compression(text); }
void read(std::string& member, std::string_view text) { member = text; }
void read(std::vector<std::string>& member, std::string_view text) {
  member = parse_list(text);
  if (member.empty()) throw_misuse("the list is empty; name at least one");
}
void read(uint64_t& member, std::string_view text) { member = parse_bytes(text); }
void read(uint32_t& member, std::string_view text) {
  member = static_cast<uint32_t>(parse_number(text, std::numeric_limits<uint32_t>::max()));
}
void read(bool& member, std::string_view text) { member = parse_number(text, 1) != 0; }
void read(std::chrono::milliseconds& member, std::string_view text) {
  member = std::chrono::milliseconds(parse_number(text, std::numeric_limits<int32_t>::max()));
}
template <typename Value>
  requires requires { Value::parse(std::string_view()); }
void read(Value& member, std::string_view text) {
  member = Value::parse(text);
}

std::string print(LogLevel member) { return std::string(name(member)); }
std::string print(Connecting member) { return member == Connecting::kLazy ? "lazy" : "eager"; }
std::string print(Compression member) { return std::string(name(member)); }
std::string print(const std::string& member) { return member; }
std::string print(const std::vector<std::string>& member) { return join(member); }
std::string print(uint64_t member) { return std::to_string(member); }
std::string print(uint32_t member) { return std::to_string(member); }
std::string print(bool member) { return member ? "1" : "0"; }
std::string print(std::chrono::milliseconds member) { return std::to_string(member.count()); }
template <typename Value>
  requires requires(const Value& value) { value.to_string(); }
std::string print(const Value& member) {
  return member.to_string();
}

struct Access {
  void (*read)(Config&, std::string_view);
  std::string (*print)(const Config&);
};

template <auto kMember>
constexpr Access access() {
  return {[](Config& config, std::string_view text) { read(config.*kMember, text); },
          [](const Config& config) { return print(config.*kMember); }};
}

struct Row {
  Setting setting;
  Access access;
};

constexpr std::array kRows{
    Row{{"HCCL_LIKE_DEBUG", "WARN", "What is logged: WARN, INFO or TRACE."},
        access<&Config::debug>()},
    Row{{"HCCL_LIKE_DEBUG_FILE", "",
         "The file that log lines go to; %h stands for the host and %p for the process. Empty: "
         "standard error."},
        access<&Config::debug_file>()},
    Row{{"HCCL_LIKE_SOCKET_IFNAME", "",
         "Network interfaces that may be used: beginnings of names separated by commas, all but "
         "those with ^ in "
         "front, whole names with = in front (eth,ib or ^docker or =eth0). Empty: all."},
        access<&Config::socket_ifname>()},
    Row{{"HCCL_LIKE_PORT_RANGE", "0-0",
         "TCP ports to listen on, the first and the last (20000-20100). 0-0: any that the system "
         "gives."},
        access<&Config::port_range>()},
    Row{{"HCCL_LIKE_TRANSPORTS", "shm,tcp", "Transports that may be used, the preferred first."},
        access<&Config::transports>()},
    Row{{"HCCL_LIKE_TRANSPORT_MODULES", "",
         "Transports to load when HCCL_LIKE_TRANSPORTS names them: name=/path/to/library.so, "
         "separated "
         "by commas."},
        access<&Config::transport_modules>()},
    Row{{"HCCL_LIKE_DEVICE_PLUGINS", "",
         "Device plugins instead of those that packages bring along: name=/path/to/plugin.so, "
         "separated by commas; name=none serves the device without its plugin."},
        access<&Config::device_plugins>()},
    Row{{"HCCL_LIKE_MPI_LIBRARY", "",
         "Path of the MPI that the transport mpi loads: libmpi_abi.so.1, MPICH's libmpi.so.12 or "
         "Open MPI's libmpi.so.40. Empty: the program's own, or the launcher's."},
        access<&Config::mpi_library>()},
    Row{{"HCCL_LIKE_FABRIC_LIBRARY", "",
         "Path of the libfabric (libfabric.so.1, version 1.17 or later) that the transport fabric "
         "loads. Empty: the one that is found."},
        access<&Config::fabric_library>()},
    Row{{"HCCL_LIKE_FABRIC_PROVIDER", "",
         "The libfabric provider that the transport fabric uses (tcp, shm, udp;ofi_rxd, "
         "verbs;ofi_rxm, "
         "efa, cxi). Empty: the best that can do what is needed."},
        access<&Config::fabric_provider>()},
    Row{{"HCCL_LIKE_FABRIC_RAILS", "0",
         "Cards of libfabric that long messages are spread over and that take each other's place "
         "when one fails, or networks where its provider has no cards: at most this many, and at "
         "most 4; 0: all alike, or one network. For cards that are others' to use, which a process "
         "cannot know."},
        access<&Config::fabric_rails>()},
    Row{{"HCCL_LIKE_FABRIC_DEVICE_MEMORY", "1",
         "Whether cards of libfabric read and write the memory of devices themselves where both "
         "can do that; 0: it goes through memory of the host. For cards or drivers that say they "
         "can and fail."},
        access<&Config::fabric_device_memory>()},
    Row{{"HCCL_LIKE_CONNECT_TIMEOUT_MS", "30000", "Milliseconds to find and connect to a peer."},
        access<&Config::connect_timeout>()},
    Row{{"HCCL_LIKE_CONNECT", "lazy",
         "When the ranks of a group are connected. lazy: each pair when a call first needs it; "
         "eager: "
         "all when the group is made, which tells at once who cannot reach whom."},
        access<&Config::connect>()},
    Row{{"HCCL_LIKE_TREE_RANKS", "1024",
         "From so many ranks on a new group's list of ranks comes from another rank, down a tree, "
         "and not from the store, which would have to send it to every rank. 0: always from the "
         "store."},
        access<&Config::tree_ranks>()},
    Row{{"HCCL_LIKE_SECRET_FILE", "",
         "A file of mode 0600 with the secret of the job, the same on all hosts (openssl rand -hex "
         "32): whoever does not have it cannot connect. Empty: HCCL_LIKE_SECRET."},
        access<&Config::secret_file>()},
    Row{{"HCCL_LIKE_SECRET", "",
         "The secret itself, where no file can be had; at least 32 characters, never shown. Empty: "
         "what stands in the store is all that ranks prove to each other."},
        access<&Config::secret>()},
    Row{{"HCCL_LIKE_REQUIRE_AUTH", "0",
         "1: a group with ranks on several hosts is not made without a secret."},
        access<&Config::require_auth>()},
    Row{{"HCCL_LIKE_ENCRYPT", "0",
         "1: what goes over any transport but shm is encrypted and cannot be changed on its way; "
         "needs a secret."},
        access<&Config::encrypt>()},
    Row{{"HCCL_LIKE_ALGO", "",
         "Algorithms to use whatever the cost model says, for experiments "
         "(all_reduce:ring;all_gather:bruck)."},
        access<&Config::algo>()},
    Row{{"HCCL_LIKE_MIXED_DEVICES", "0",
         "1: this rank passes tensors of another kind of device than other ranks of its groups do, "
         "or CPU tensors where they pass tensors of an accelerator, and hccl-like cannot see it "
         "when a group is made. One rank of a group is enough."},
        access<&Config::mixed_devices>()},
    Row{{"HCCL_LIKE_DETERMINISTIC", "0",
         "1: reductions have the same bits whatever the algorithm, the size, the path and the "
         "hosts "
         "of the ranks: sums are in the order of the ranks, rounded once. Slower between hosts. On "
         "all ranks."},
        access<&Config::deterministic>()},
    Row{{"HCCL_LIKE_COMPRESSION", "none",
         "Format of float32 in messages of all_reduce, reduce_scatter and all_gather between "
         "hosts: "
         "mx8 (a quarter of the bytes), mx4 (an eighth), bf16 (half), or none: every bit arrives. "
         "On all ranks."},
        access<&Config::compression>()},
    Row{{"HCCL_LIKE_PROFILE", "",
         "A file that hccl-like tune wrote: the algorithms that were measured to be the fastest on "
         "this cluster. Empty: the cost model decides."},
        access<&Config::profile>()},
    Row{{"HCCL_LIKE_SLICE_BYTES", "1M",
         "Bytes of payload in one slice; larger ones run in several overlapping slices."},
        access<&Config::slice_bytes>()},
    Row{{"HCCL_LIKE_REMOTE_SLICE_BYTES", "4M", "The same where the ranks are on several hosts."},
        access<&Config::remote_slice_bytes>()},
    Row{{"HCCL_LIKE_SLICE_WINDOW", "4",
         "Slices of one operation in flight at once; one between hosts of one machine."},
        access<&Config::slice_window>()},
    Row{{"HCCL_LIKE_EAGER_BYTES", "512K",
         "Bytes up to which a message between hosts is sent before its receiver asks for it. What "
         "nobody asks for soon takes as much memory there."},
        access<&Config::eager_bytes>()},
    Row{{"HCCL_LIKE_SHM_EAGER_BYTES", "256K", "The same between processes of one host."},
        access<&Config::shm_eager_bytes>()},
    Row{{"HCCL_LIKE_SHM_RING_BYTES", "2M",
         "Bytes of the shared-memory ring buffer per direction and peer."},
        access<&Config::shm_ring_bytes>()},
    Row{{"HCCL_LIKE_BOARD", "1",
         "1: small calls between ranks of one host go through memory that all of them see; 0: all "
         "calls are messages."},
        access<&Config::board>()},
    Row{{"HCCL_LIKE_DIRECT", "1",
         "1: large calls between ranks of one host read and write each other's memory, or pass "
         "through shared memory without messages; 0: they are messages. Needs HCCL_LIKE_BOARD."},
        access<&Config::direct>()},
    Row{{"HCCL_LIKE_TCP_RAILS", "1",
         "TCP connections between two ranks, 1 to 16, over which large amounts are spread: in "
         "turns over the networks "
         "that the two hosts have in common."},
        access<&Config::tcp_rails>()},
    Row{{"HCCL_LIKE_TCP_BUFFER_BYTES", "0",
         "Bytes of a TCP socket's buffers; 0: the system decides."},
        access<&Config::tcp_buffer_bytes>()},
    Row{{"HCCL_LIKE_TCP_CONGESTION", "auto",
         "Congestion control of TCP connections: system (net.ipv4.tcp_congestion_control), a name "
         "that the kernel knows, or auto: reno in "
         "the place of bbr and cubic for peers less than 2 ms away, else the system's."},
        access<&Config::tcp_congestion>()},
    Row{{"HCCL_LIKE_SPINS", "50", "Polls in a row before a waiting thread yields its core."},
        access<&Config::spins>()},
    Row{{"HCCL_LIKE_YIELDS", "200",
         "Yields in a row before a waiting thread sleeps; a hundred times as many, for 10 ms at "
         "most, where the program waits and each rank of the host has a core of its own."},
        access<&Config::yields>()},
    Row{{"HCCL_LIKE_THREADS", "0",
         "Threads at most that share one long reduction or copy, while cores are idle; 0: up to 8; "
         "1: never more than the one that waits."},
        access<&Config::threads>()},
    Row{{"HCCL_LIKE_FLIGHT_STACKS", "0",
         "1: the flight recorder keeps the Python stack of every call, at a microsecond or more "
         "each."},
        access<&Config::flight_stacks>()},
    Row{{"HCCL_LIKE_FLIGHT_DUMP", "1",
         "1: the flight recorder is written to a file when a call fails, to find out why; 0: only "
         "when asked."},
        access<&Config::flight_dump>()},
    Row{{"HCCL_LIKE_DUMP_SIGNAL", "",
         "A signal at which the flight recorder is written to its file (USR1, USR2, HUP, or a "
         "number). Empty: none."},
        access<&Config::dump_signal>()},
    Row{{"HCCL_LIKE_REPORT_MS", "600",
         "Milliseconds at most that the ranks of a call which ran into its time-out tell each "
         "other where they are, for the table that one of them logs before it raises; 0: no "
         "table."},
        access<&Config::report>()},
    Row{{"HCCL_LIKE_METRICS", "",
         "Where each process tells its counters to Prometheus, read-only: a port of the loopback "
         "address (9400), an address and a port (10.0.0.5:9400), each process's local rank added "
         "to the port; or a file for node_exporter (/var/lib/node_exporter/job.prom), the local "
         "rank before its ending. Empty: nowhere."},
        access<&Config::metrics>()},
    Row{{"HCCL_LIKE_CALL_SITES", "0",
         "1: ranks must make a collective call from the same line of the program (one with a root: "
         "from the same function), and errors name the lines. For debugging: some microseconds a "
         "call."},
        access<&Config::call_sites>()},
    Row{{"HCCL_LIKE_NAN_CHECK", "0",
         "1: a call whose input has a NaN fails on all ranks, and says which rank and element."},
        access<&Config::nan_check>()},
    Row{{"HCCL_LIKE_VERIFY", "0",
         "Calls whose results are compared bit by bit across ranks: 1/1000, every thousandth "
         "all_reduce, all_gather or broadcast of a group; 1, each; 0, none. If they differ, the "
         "group fails and names the ranks."},
        access<&Config::verify>()},
    Row{{"HCCL_LIKE_TORCH_COMPAT", "",
         "Mends of torch's own Python to leave out, by name (hccl-like compat lists them); 0: all "
         "of them."},
        access<&Config::torch_compat>()},
    Row{{"HCCL_LIKE_INTEGRATIONS", "",
         "Integrations to load in every process without a line in the program, by name "
         "(accelerate,lightning); 0: none at all, and no warning where one is missing."},
        access<&Config::integrations>()},
};

constexpr auto kSettings = [] {
  std::array<Setting, kRows.size()> settings{};
  std::transform(kRows.begin(), kRows.end(), settings.begin(),
                 [](const Row& row) { return row.setting; });
  return settings;
}();

// Levenshtein distance.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

std::string_view nearest_name(std::string_view unknown) {
  const auto distance = [&](const Row& row) { return edit_distance(row.setting.name, unknown); };
  return std::ranges::min_element(kRows, {}, distance)->setting.name;
}

void read_row(const Row& row, Config& config, std::string_view value) {
  try {
    row.access.read(config, value);
  } catch (const Exception& e) {
    throw_misuse(std::string(row.setting.name) + ": " + e.what());
  }
}

// True on the first call with this text in this process.
bool first_time(const std::string& warning) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  return seen.insert(warning).second;
}

}  // namespace

ParsedConfig parse_config(std::span<const char* const> environment) {
  ParsedConfig parsed;
  for (const std::string_view variable : environment) {
    const size_t equals = variable.find('=');
    if (!variable.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const std::string_view name = variable.substr(0, equals);
    const auto row = std::ranges::find(kRows, name, [](const Row& r) { return r.setting.name; });
    if (row != kRows.end()) {
      read_row(*row, parsed.config, variable.substr(equals + 1));
    } else {
      parsed.warnings.push_back("there is no setting " + std::string(name) + "; did you mean " +
                                std::string(nearest_name(name)));
    }
  }
  return parsed;
}

Config Config::from_environment() {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  const ParsedConfig parsed = parse_config({environ, count});
  for (const std::string& warning : parsed.warnings) {
    if (first_time(warning)) log_warn(warning);
  }
  return parsed.config;
}

std::map<std::string, std::string> Config::common() const {
  constexpr std::string_view kCommon[] = {
      "HCCL_LIKE_ALGO",         "HCCL_LIKE_SLICE_BYTES",  "HCCL_LIKE_REMOTE_SLICE_BYTES",
      "HCCL_LIKE_SLICE_WINDOW", "HCCL_LIKE_BOARD",        "HCCL_LIKE_DIRECT",
      "HCCL_LIKE_CONNECT",      "HCCL_LIKE_REQUIRE_AUTH", "HCCL_LIKE_ENCRYPT",
      "HCCL_LIKE_TCP_RAILS",    "HCCL_LIKE_CALL_SITES",   "HCCL_LIKE_DETERMINISTIC",
      "HCCL_LIKE_COMPRESSION",  "HCCL_LIKE_VERIFY",       "HCCL_LIKE_TREE_RANKS"};
  const Config defaults;
  std::map<std::string, std::string> values;
  for (const Row& row : kRows) {
    if (std::ranges::find(kCommon, row.setting.name) == std::end(kCommon)) continue;
    std::string value = row.access.print(*this);
    if (value != row.access.print(defaults)) values.emplace(row.setting.name, std::move(value));
  }
  return values;
}

std::string Config::to_string() const {
  const size_t width =
      std::ranges::max(kSettings, {}, [](const Setting& s) { return s.name.size(); }).name.size();
  const Config defaults;
  std::string text;
  for (const Row& row : kRows) {
    const std::string value = row.access.print(*this);
    std::string line(value == row.access.print(defaults) ? "  " : "* ");
    line += row.setting.name;
    line.resize(width + 2, ' ');
    text += line + " = " + value + "\n";
  }
  return text;
}

std::span<const Setting> Config::settings() { return kSettings; }

}  // namespace hccl_like

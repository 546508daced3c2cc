#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "collectives/compression/compressed_calls.h"
#include "collectives/engine/call_path.h"
#include "collectives/engine/runtime.h"
#include "collectives/own/own_algorithm.h"
#include "collectives/selection/choose.h"
#include "collectives/selection/profile.h"
#include "collectives/verify/job.h"
#include "collectives/verify/simulate.h"
#include "core/settings/config.h"
#include "device/compress/compress.h"
#include "device/reduce/reduce.h"
#include "process_group/issue/host_phases.h"
#include "python/bindings/bindings.h"
#include "python/bindings/process.h"

namespace hccl_like {
namespace {

namespace py = pybind11;

// Values in the order of Config::settings(), parsed from "* NAME   = value"; none for defaults,
// which are shown as documented (64K rather than 65536).
std::vector<std::optional<std::string>> changed_values() {
  std::vector<std::optional<std::string>> values;
  std::istringstream lines(Config::from_environment().to_string());
  for (std::string line; std::getline(lines, line);) {
    values.emplace_back();
    const size_t equals = line.find(" = ");
    if (line.starts_with('*') && equals != std::string::npos)
      values.back() = line.substr(equals + 3);
  }
  return values;
}

py::list settings() {
  py::list rows;
  const auto changed = changed_values();
  size_t i = 0;
  for (const Setting& setting : Config::settings()) {
    const std::string otherwise(setting.default_value);
    rows.append(py::make_tuple(std::string(setting.name), changed.at(i++).value_or(otherwise),
                               otherwise, std::string(setting.help)));
  }
  return rows;
}

Collective known_collective(const std::string& wanted) {
  if (const auto found = hccl_like::collective_named(wanted)) return *found;
  std::string known;
  for (int index = 0; index < kCollectives; ++index)
    known += (index ? ", " : "") + std::string(name(static_cast<Collective>(index)));
  throw py::value_error("there is no collective '" + wanted + "'; there are " + known);
}

bool shares_memory(const Config& config) {
  return std::ranges::find(config.transports, "shm") != config.transports.end();
}

// Call path in a group with the current settings. `layout`: as below.
std::string way(const std::string& collective, uint64_t bytes, const std::vector<int>& layout,
                std::optional<c10::Device> device) {
  if (layout.empty()) throw py::value_error("a group has at least one rank");
  const Config config = Config::from_environment();
  const Collective wanted = known_collective(collective);
  const auto ranks = static_cast<int>(layout.size());
  const Hosts hosts = Hosts::of(layout);
  const bool shares = config.board && shares_memory(config);
  const std::string_view forced = config.algo.find(name(wanted));
  const CallPathOptions options{
      .board = shares && ranks > 1 && hosts.count() == 1,
      .maps_memory = shares,
      .forced = !forced.empty(),
      .direct = config.direct,
      .deterministic = config.deterministic,
      .own = !forced.empty() && find_algorithm(wanted, forced) == nullptr};
  const Semantics meaning = semantics(wanted);
  const bool chunks = meaning.input != Chunking::kWhole || meaning.output != Chunking::kWhole;
  if (device && bytes / (chunks ? layout.size() : 1) >= StreamExecutor::kLeastChunk &&
      Staging::may_use_streams(process().devices.access(*device), hosts, options, wanted))
    return "streams";
  if (device && (config.compression == Compression::kNone || wanted == Collective::kBroadcast) &&
      HostPhases::may_serve(process().devices.access(*device), hosts, options, wanted, bytes,
                            bytes_of_slice(config)))
    return "phases";
  switch (call_path(wanted, bytes, ranks, options)) {
    case CallPath::kBoard:
      return "board";
    case CallPath::kLarge:
      return "direct";
    default:
      return "messages";
  }
}

// `layout`: the host of each rank, any numbers.
Topology topology_of(const std::vector<int>& layout, const Config& config) {
  if (layout.empty()) throw py::value_error("a group has at least one rank");
  Topology topology{.hosts = Hosts::of(layout)};
  if (topology.hosts.count() == 1)
    topology.cores_per_host = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (!shares_memory(config)) topology.local = kTcpLoopback;
  return topology;
}

// The format of the messages between hosts of a call of float32; null: they are not compressed.
const Codec* codec_of(Collective collective, uint64_t bytes, const Hosts& hosts,
                      const Config& config) {
  const Call call{.collective = collective, .type = DataType::kFloat32};
  return is_compressed(call, bytes, hosts) ? codec(config.compression) : nullptr;
}

// The network as a compressed call finds it: it takes more floats a second. Encoding is not priced.
void compress(Topology& topology, const Codec& codec) {
  topology.remote.ps_per_kib =
      topology.remote.ps_per_kib * codec.block_bytes / (Codec::kBlock * sizeof(float));
}

// As a communicator chooses.
ChooseOptions options_of(std::string_view forced, const OwnAlgorithm* own, const Hosts& hosts,
                         const Config& config) {
  return {.forced = forced,
          .own = own != nullptr ? &own->algorithm : nullptr,
          .slice_bytes = hosts.count() > 1 ? config.remote_slice_bytes : config.slice_bytes,
          .slice_window = config.slice_window,
          .deterministic = config.deterministic,
          .simulate = true};
}

// (algorithm, slices, microseconds), preferred one first.
py::list ways(const std::string& collective, uint64_t bytes, const std::vector<int>& layout,
              const std::string& own_json) {
  const Config config = Config::from_environment();
  const Collective wanted = known_collective(collective);
  Topology topology = topology_of(layout, config);
  const auto own = own_json.empty() ? nullptr : OwnAlgorithm::parse(own_json);
  ChooseOptions options =
      options_of(config.algo.find(name(wanted)), own.get(), topology.hosts, config);
  const Codec* const codec = codec_of(wanted, bytes, topology.hosts, config);
  if (codec != nullptr) {
    options.forced = compressed_algorithm(wanted, topology.hosts, options.forced);
    compress(topology, *codec);
  }
  const Choice used = choose(wanted, bytes, sizeof(float), topology, options);
  std::vector<Choice> choices = candidates(wanted, bytes, sizeof(float), topology, options);
  if (codec != nullptr && reduces(wanted))
    std::erase_if(choices, [&](const Choice& c) { return c.algorithm != used.algorithm; });
  std::stable_partition(choices.begin(), choices.end(),
                        [&](const Choice& c) { return c.algorithm == used.algorithm; });
  py::list rows;
  for (const Choice& choice : choices) {
    rows.append(py::make_tuple(std::string(choice.algorithm->name), choice.slices,
                               static_cast<double>(choice.estimate_ps) * 1e-6));
  }
  return rows;
}

// Counts the bytes that leave the host that sends most, by one algorithm: of floats, and on the
// network, where the settings may compress them.
std::pair<uint64_t, uint64_t> bytes_between_hosts(const std::string& collective, uint64_t bytes,
                                                  const std::vector<int>& layout,
                                                  const std::string& algorithm) {
  const Config config = Config::from_environment();
  const Collective wanted = known_collective(collective);
  const Hosts hosts = Hosts::of(layout);
  const Algorithm* const found = find_algorithm(wanted, algorithm);
  if (found == nullptr)
    throw py::value_error("there is no " + collective + " algorithm '" + algorithm + "'");
  const Job job = make_job(*found, hosts);
  std::vector<uint64_t> chunks(static_cast<size_t>(hosts.count()));
  for (int rank = 0; rank < job.size(); ++rank)
    for (const Step& step : job.ranks[static_cast<size_t>(rank)].steps())
      if (step.kind == Step::Kind::kSend && hosts.host(step.peer) != hosts.host(rank))
        chunks[static_cast<size_t>(hosts.host(rank))] += step.count;
  const uint64_t floats = std::ranges::max(chunks) * bytes / job.ranks.front().chunks();
  const Codec* const codec = codec_of(wanted, bytes, hosts, config);
  return {floats, codec == nullptr ? floats : codec->bytes(floats / sizeof(float))};
}

// (rank, the port out, peer, slice, round, begin, end) of everything that occupies a port, by rank.
py::list port_uses(const Job& job, const Simulation& simulation) {
  py::list rows;
  for (const PortUse& use : simulation.uses) {
    const Schedule& schedule = job.ranks[use.rank];
    size_t round = 0;
    for (size_t before = schedule.steps(0).size(); before <= use.step;)
      before += schedule.steps(++round).size();
    rows.append(py::make_tuple(use.rank, use.out, schedule.steps()[use.step].peer, use.slice, round,
                               static_cast<double>(use.begin_ps) * 1e-6,
                               static_cast<double>(use.end_ps) * 1e-6));
  }
  return rows;
}

// The algorithm `name`, or the preferred one, as it would run: its name, its slices, the schedule
// of each rank as text, and what occupies the ports of the ranks on the virtual clock.
py::tuple plan(const std::string& collective, uint64_t bytes, const std::vector<int>& layout,
               const std::string& algorithm, const std::string& own_json) {
  const Config config = Config::from_environment();
  const Collective wanted = known_collective(collective);
  if (wanted == Collective::kSend || wanted == Collective::kRecv)
    throw py::value_error("one rank sends and one receives: there is no schedule of all ranks");
  Topology topology = topology_of(layout, config);
  const auto own = own_json.empty() ? nullptr : OwnAlgorithm::parse(own_json);
  std::string_view forced = algorithm.empty() ? config.algo.find(name(wanted)) : algorithm;
  if (const Codec* const codec = codec_of(wanted, bytes, topology.hosts, config)) {
    forced = compressed_algorithm(wanted, topology.hosts, forced);
    compress(topology, *codec);
  }
  const Choice choice = choose(wanted, bytes, sizeof(float), topology,
                               options_of(forced, own.get(), topology.hosts, config));
  const Job job = make_job(*choice.algorithm, topology.hosts);
  const Simulation simulation = simulate(job, topology,
                                         {.bytes = bytes,
                                          .element_bytes = sizeof(float),
                                          .slices = choice.slices,
                                          .window = config.slice_window,
                                          .record = true});
  std::vector<std::string> texts;
  for (const Schedule& schedule : job.ranks) texts.push_back(schedule.to_string());
  return py::make_tuple(std::string(choice.algorithm->name), choice.slices, texts,
                        port_uses(job, simulation));
}

}  // namespace

void bind_settings(py::module_& module) {
  module.def("settings", &settings, "Every setting: (name, value in force, default, help).");
  module.def(
      "explain", &ways, py::arg("collective"), py::arg("bytes"), py::arg("layout"),
      py::arg("own") = "",
      "What could carry out a call of `bytes` of float32 in all chunks together, on ranks of "
      "which `layout` gives the hosts: (algorithm, slices, microseconds as the cost model sees "
      "it), "
      "first the one that the settings and the model pick; for calls that go by messages (way()). "
      "`own`: one more candidate, in the JSON form of hccl_like.schedule.");
  module.def("plan", &plan, py::arg("collective"), py::arg("bytes"), py::arg("layout"),
             py::arg("algorithm") = "", py::arg("own") = "",
             "How one candidate of explain() runs, the preferred one if none is named: its name, "
             "its slices, each rank's schedule as text, and of everything that occupies a port of "
             "a rank on the virtual clock (rank, whether the port out, peer or -1, slice, round, "
             "begin and end in microseconds).");
  module.def(
      "way", &way, py::arg("collective"), py::arg("bytes"), py::arg("layout"),
      py::arg("device") = py::none(),
      "How such a call goes: over the \"board\", \"direct\" between the ranks' memory, by "
      "\"streams\" of the devices, if `device` (with an index) is one whose streams can, or by "
      "\"messages\", which alone take an algorithm. The group's own calls ask the same "
      "function.");
  module.def("bytes_between_hosts", &bytes_between_hosts, py::arg("collective"), py::arg("bytes"),
             py::arg("layout"), py::arg("algorithm"),
             "What leaves the host that sends most, in a call of `bytes` of float32: bytes of "
             "floats, and bytes on the network, which are fewer if HCCL_LIKE_COMPRESSION applies "
             "to the call.");
  module.def(
      "layout_name", [](const std::vector<int>& layout) { return layout_name(Hosts::of(layout)); },
      py::arg("layout"), "What a profile calls a layout, the host of each rank: \"2x4\".");
  module.def("reduction_target", &reduction_target,
             "The instruction set that reductions use on this processor.");
}

}  // namespace hccl_like

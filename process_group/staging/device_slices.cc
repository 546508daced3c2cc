#include "process_group/staging/device_slices.h"

#include <algorithm>
#include <utility>

#include "collectives/same_host/shape.h"
#include "core/base/log.h"

namespace hccl_like {
namespace {

constexpr size_t kMostRemembered = 1024;

bool overlap(Region a, Region b) {
  return a.bytes > 0 && b.bytes > 0 && a.data < b.data + b.bytes && b.data < a.data + a.bytes;
}

// True if input and output overlap: an exchange would overwrite input that peers still have to
// read.
bool exchanges_in_place(const DeviceSlices::Places& places) {
  return std::ranges::any_of(places.input, [&](Region from) {
    return std::ranges::any_of(places.output, [&](Region to) { return overlap(from, to); });
  });
}

}  // namespace

bool DeviceSlices::may_serve(const DeviceAccess& access, const Communicator& communicator) {
  return access.plugin() != nullptr && access.plugin()->can_identify() &&
         communicator.reaches_devices();
}

std::optional<DeviceSlices::Places> DeviceSlices::places(Communicator& communicator,
                                                         Collective collective,
                                                         const DeviceSide& input,
                                                         const DeviceSide& output) {
  if (reduces(collective) || !may_serve(access_, communicator)) return std::nullopt;
  DeviceSide::Exports exports{.memories = devices_.exported(),
                              .device = *access_.plugin(),
                              .index = access_.plugin_index()};
  auto in = input.places(exports);
  auto out = in ? output.places(exports) : std::nullopt;
  if (!out) return tell(false, exports.why_not), std::nullopt;
  Places places{std::move(*in), std::move(*out), std::move(exports.held)};
  if (collective == Collective::kAllToAll && exchanges_in_place(places)) return std::nullopt;
  for (const auto& memory : places.held)
    if (!prepare(communicator, *memory))
      return tell(false, "the network card does not take its memory"), std::nullopt;
  return places;
}

// Registers each piece once. The cards renew evicted registrations themselves.
bool DeviceSlices::prepare(Communicator& communicator, const ExportedMemory& memory) {
  const auto known = prepared_.find(memory.identity());
  if (known != prepared_.end()) return known->second;
  if (prepared_.size() == kMostRemembered) prepared_.clear();
  return prepared_[memory.identity()] = communicator.prepare_memory(memory.data(), memory.size());
}

std::optional<std::vector<size_t>> DeviceSlices::take(
    const Places& places, const DeviceSide& input, const DeviceSide& output, Part part,
    size_t element_bytes, std::span<const std::shared_ptr<Operation>> operations,
    std::span<const SliceRole> roles) {
  struct Change {
    Operation* operation;
    Layout input, output;
  };
  std::vector<Change> changes;
  std::vector<size_t> copies;
  for (size_t i = 0; i < operations.size(); ++i) {
    Operation& operation = *operations[i];
    const SliceRole& role = roles[i];
    const Communicator& communicator = operation.communicator();
    Change change{&operation, {}, {}};
    if (role.kind == SliceRole::Kind::kWhole) {
      change.input = input.layout(places.input, part, element_bytes);
      change.output = output.layout(places.output, part, element_bytes);
    } else if (role.peer == communicator.rank()) {
      // A message to this rank moves only unused staged bytes.
      if (role.kind == SliceRole::Kind::kSend) copies.push_back(role.chunk);
      continue;
    } else if (role.kind == SliceRole::Kind::kSend) {
      const Region from = input.place(places.input, role.chunk, part);
      change.input = Layout::even(from, 1, element_bytes);
    } else {
      const Region to = output.place(places.output, role.chunk, part);
      change.output = Layout::even(to, 1, element_bytes);
    }
    const auto copied = communicator.may_use_device_memory(operation, change.input, change.output);
    if (!copied) return std::nullopt;
    copies.insert(copies.end(), copied->begin(), copied->end());
    changes.push_back(std::move(change));
  }
  if (!copies.empty() && !access_.plugin()->can_copy_within()) return std::nullopt;
  for (Change& change : changes)
    Communicator::use_device_memory(*change.operation, std::move(change.input),
                                    std::move(change.output));
  tell(true, {});
  return copies;
}

void DeviceSlices::tell(bool direct, const std::string& why) {
  if (std::exchange(direct ? told_direct_ : told_staged_, true)) return;
  const std::string device = access_.device().str();
  if (direct)
    log_info([&] { return device + ": network cards read and write its memory in large calls"; });
  else
    log_warn(device +
             ": large calls are staged, although network cards take memory of devices: " + why);
}

}  // namespace hccl_like

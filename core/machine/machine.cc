#include "core/machine/machine.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

namespace hccl_like {
namespace {

// The hwloc functions in use. Inline helpers of hwloc.h would need others at link time.
struct Hwloc {
  decltype(&::hwloc_topology_init) topology_init;
  decltype(&::hwloc_topology_destroy) topology_destroy;
  decltype(&::hwloc_topology_load) topology_load;
  decltype(&::hwloc_topology_set_io_types_filter) set_io_types_filter;
  decltype(&::hwloc_topology_set_type_filter) set_type_filter;
  decltype(&::hwloc_get_nbobjs_by_depth) count;
  decltype(&::hwloc_get_obj_by_depth) object;
  decltype(&::hwloc_get_type_depth) depth;
  decltype(&::hwloc_bitmap_first) first;
  decltype(&::hwloc_bitmap_weight) weight;
  std::string missing;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Hwloc load_hwloc() {
  Hwloc all{};
  void* library = ::dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    all.missing = "sockets, memory nodes and distances are unknown: install libhwloc15";
    return all;
  }
  const bool found = find(library, "hwloc_topology_init", all.topology_init) &&
                     find(library, "hwloc_topology_destroy", all.topology_destroy) &&
                     find(library, "hwloc_topology_load", all.topology_load) &&
                     find(library, "hwloc_topology_set_io_types_filter", all.set_io_types_filter) &&
                     find(library, "hwloc_topology_set_type_filter", all.set_type_filter) &&
                     find(library, "hwloc_get_nbobjs_by_depth", all.count) &&
                     find(library, "hwloc_get_obj_by_depth", all.object) &&
                     find(library, "hwloc_get_type_depth", all.depth) &&
                     find(library, "hwloc_bitmap_first", all.first) &&
                     find(library, "hwloc_bitmap_weight", all.weight);
  if (!found)
    all.missing =
        "sockets, memory nodes and distances are unknown: libhwloc.so.15 is older than 2.0";
  return all;
}

// Never unloaded: the library may own threads or handlers.
const Hwloc& hwloc() {
  static const Hwloc loaded = load_hwloc();
  return loaded;
}

std::string pci_name(hwloc_obj_t object) {
  for (hwloc_obj_t at = object; at != nullptr; at = at->parent) {
    if (at->type != HWLOC_OBJ_PCI_DEVICE) continue;
    const auto& pci = at->attr->pcidev;
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.%01x", static_cast<unsigned>(pci.domain),
                  pci.bus, pci.dev, pci.func);
    return text;
  }
  return "";
}

int megabits_of(const std::string& interface_name) {
  std::ifstream file("/sys/class/net/" + interface_name + "/speed");
  int speed = 0;
  return file >> speed && speed > 0 ? speed : 0;
}

// Interfaces that are up, except loopback.
std::vector<std::string> interfaces() {
  std::vector<std::string> names;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return names;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool up = one->ifa_flags & IFF_UP, loopback = one->ifa_flags & IFF_LOOPBACK;
    if (up && !loopback && std::ranges::find(names, one->ifa_name) == names.end())
      names.emplace_back(one->ifa_name);
  }
  ::freeifaddrs(list);
  return names;
}

// The PCI function of an interface. For a virtio interface: the PCI function of its parent device.
std::string pci_of(const std::string& interface_name) {
  std::error_code missing;
  const auto path =
      std::filesystem::canonical("/sys/class/net/" + interface_name + "/device", missing);
  std::string found;
  for (const auto& part : path) {
    const std::string name = part.string();
    if (name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.') found = name;
  }
  return found;
}

bool from_file() { return std::getenv("HWLOC_XMLFILE") != nullptr; }

class Map {
 public:
  explicit Map(const Hwloc& library) : library_(library) {
    if (!library_.missing.empty() || library_.topology_init(&topology_) != 0) return;
    library_.set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    // Interface names come from the system. Discovery of all OS devices would make hwloc start
    // accelerator runtimes. An XML file is already parsed.
    if (!from_file())
      library_.set_type_filter(topology_, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_NONE);
    loaded_ = library_.topology_load(topology_) == 0;
  }
  ~Map() {
    if (topology_ != nullptr) library_.topology_destroy(topology_);
  }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;

  bool loaded() const { return loaded_; }

  int count(hwloc_obj_type_t type) const {
    return static_cast<int>(library_.count(topology_, library_.depth(topology_, type)));
  }

  std::vector<hwloc_obj_t> objects(hwloc_obj_type_t type) const {
    std::vector<hwloc_obj_t> all;
    for (int i = 0; i < count(type); ++i)
      all.push_back(
          library_.object(topology_, library_.depth(topology_, type), static_cast<unsigned>(i)));
    return all;
  }

  int node(hwloc_obj_t object) const {
    hwloc_obj_t at = object;
    while (at != nullptr && at->nodeset == nullptr) at = at->parent;
    return at == nullptr || library_.weight(at->nodeset) != 1 ? -1 : library_.first(at->nodeset);
  }

  hwloc_obj_t device(const std::string& pci) const {
    for (const hwloc_obj_t object : objects(HWLOC_OBJ_PCI_DEVICE))
      if (!pci.empty() && pci_name(object) == pci) return object;
    return nullptr;
  }

  std::string distance(hwloc_obj_t a, hwloc_obj_t b) const {
    if (a == nullptr || b == nullptr) return "?";
    std::vector<hwloc_obj_t> above;
    for (hwloc_obj_t at = a; at != nullptr; at = at->parent) above.push_back(at);
    hwloc_obj_t common = b;
    while (std::ranges::find(above, common) == above.end()) common = common->parent;
    const bool io = common->type == HWLOC_OBJ_PCI_DEVICE || common->type == HWLOC_OBJ_OS_DEVICE;
    // A host bridge belongs to its processor and gives no shorter path.
    const bool switched = common->type == HWLOC_OBJ_BRIDGE &&
                          common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
    if (io || switched) return "bridge";
    if (node(a) >= 0 && node(a) == node(b) && count(HWLOC_OBJ_NUMANODE) > 1) return "node";
    for (hwloc_obj_t at = common; at != nullptr; at = at->parent)
      if (at->type == HWLOC_OBJ_PACKAGE) return "socket";
    return count(HWLOC_OBJ_PACKAGE) == 1 ? "socket" : "host";
  }

 private:
  const Hwloc& library_;
  hwloc_topology_t topology_ = nullptr;
  bool loaded_ = false;
};

}  // namespace

Look look_at_machine(std::span<const std::string> device_pci) {
  Look look;
  Machine& machine = look.machine;
  const Map map(hwloc());
  if (!map.loaded()) {
    look.missing = hwloc().missing.empty() ? "hwloc cannot read this machine" : hwloc().missing;
    machine.threads = static_cast<int>(std::thread::hardware_concurrency());
    for (const std::string& name : interfaces())
      machine.nics.push_back(
          {.name = name, .pci = pci_of(name), .node = -1, .megabits = megabits_of(name)});
    look.distances.assign(device_pci.size(), std::vector<std::string>(machine.nics.size(), "?"));
    return look;
  }
  machine.sockets = map.count(HWLOC_OBJ_PACKAGE);
  machine.nodes = map.count(HWLOC_OBJ_NUMANODE);
  machine.cores = map.count(HWLOC_OBJ_CORE);
  machine.threads = map.count(HWLOC_OBJ_PU);
  std::vector<hwloc_obj_t> places;
  for (const hwloc_obj_t object : map.objects(HWLOC_OBJ_OS_DEVICE)) {
    if (object->attr->osdev.type != HWLOC_OBJ_OSDEV_NETWORK || object->name == nullptr) continue;
    machine.nics.push_back({.name = object->name,
                            .pci = pci_name(object),
                            .node = map.node(object),
                            .megabits = megabits_of(object->name)});
    places.push_back(object);
  }
  for (const std::string& name : from_file() ? std::vector<std::string>() : interfaces()) {
    const std::string pci = pci_of(name);
    places.push_back(map.device(pci));
    machine.nics.push_back({.name = name,
                            .pci = pci,
                            .node = places.back() == nullptr ? -1 : map.node(places.back()),
                            .megabits = megabits_of(name)});
  }
  for (const std::string& pci : device_pci) {
    auto& row = look.distances.emplace_back();
    for (const hwloc_obj_t place : places) row.push_back(map.distance(map.device(pci), place));
  }
  return look;
}

bool first_process_here() { return local_rank() == 0; }

std::optional<int> local_rank() {
  for (const char* name :
       {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text(value);
    int number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || number < 0) return {};
    return number;
  }
  return {};
}

}  // namespace hccl_like

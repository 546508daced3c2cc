#pragma once
// libfabric as it is found when the process runs. Its headers are needed to build this, the library
// is not: all but six of its functions are calls through tables that its objects carry.
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <memory>
#include <string>
#include <vector>

namespace hccl_like {

struct FabricLibrary {
  int (*getinfo)(uint32_t version, const char* node, const char* service, uint64_t flags,
                 const fi_info* hints, fi_info** info);
  void (*freeinfo)(fi_info*);
  fi_info* (*dupinfo)(const fi_info*);
  int (*fabric)(fi_fabric_attr*, fid_fabric**, void* context);
  uint32_t (*version)();
  const char* (*strerror)(int);

  std::string path;

  // "1.17".
  std::string version_text() const;
};

struct FreeInfo {
  const FabricLibrary* library;
  void operator()(fi_info* info) const { library->freeinfo(info); }
};
using FabricInfo = std::unique_ptr<fi_info, FreeInfo>;

// The oldest interface that serves; the application says it to the library, which then behaves as
// that version did.
inline constexpr uint32_t kFabricVersion = FI_VERSION(1, 17);

// Loads it for good: `setting` if it is not empty; else the one that the loader finds, or the first
// of `hints` (paths) that can be loaded. The first call decides for the process. Throws
// kUnsupported, with what was tried. Any thread.
const FabricLibrary& load_fabric(const std::string& setting, const std::vector<std::string>& hints);

// Registration of a device's memory by a file that stands for it came with this version, after the
// one that is said otherwise.
inline constexpr uint32_t kFabricVersionOfFiles = FI_VERSION(1, 20);

// What a provider offers that can carry blocks to another process: the one that `provider` names,
// or else the best: real cards before software, and what reaches other hosts only. Behind it what
// the same provider offers over other cards, or, where it has none, over other networks; `rails` in
// all at most, 0 for all cards or one network. With `device_memory` one that takes it goes before
// one that is as good but for that. Throws kUnsupported with the providers there are.
std::vector<FabricInfo> choose_providers(const FabricLibrary& library, const std::string& provider,
                                         const std::vector<std::string>& own_addresses,
                                         size_t rails, bool device_memory);

// Whether it was asked for with memory of devices, and takes it. Only cards do: software would copy
// through the host by itself.
bool takes_device_memory(const fi_info& info);

// Whether it reads a peer's memory faster than it moves messages. Not where datagrams are made
// reliable by software: both are cut up there, and reads from a peer that has gone end only after
// long.
bool reads_memory(const fi_info& info);

// Whether what a provider offers goes beyond this host.
bool reaches_hosts(const fi_info& info);

}  // namespace hccl_like

#pragma once
// libfabric, loaded at run time; the build needs only its headers.
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

// The oldest usable interface version. The library behaves as that version.
inline constexpr uint32_t kFabricVersion = FI_VERSION(1, 17);

// Loads libfabric permanently: `setting` if not empty, else the one that the loader finds, else the
// first loadable path of `hints`. The first call decides for the process. Throws kUnsupported with
// the attempts. Any thread.
const FabricLibrary& load_fabric(const std::string& setting, const std::vector<std::string>& hints);

// First version with dma-buf registration of device memory; requested for device memory only.
inline constexpr uint32_t kFabricVersionOfFiles = FI_VERSION(1, 20);

// First version with which a card may fail. Software of older ones crashes when it closes an
// endpoint in the middle of a read, and delivers wrong bytes after a reset.
inline constexpr uint32_t kFabricVersionThatMends = FI_VERSION(1, 18);

// The offers (fi_info) of the provider named `provider`, or else of the best provider: those that
// reach other hosts come first, then real cards before software. The first offer carries messages.
// The others are the same provider's offers over other cards or, without cards, over other
// networks; at most `rails` in all, 0 meaning all cards or one network. Among equals,
// `device_memory` prefers a provider that takes device memory. Throws kUnsupported with the
// available providers.
std::vector<FabricInfo> choose_providers(const FabricLibrary& library, const std::string& provider,
                                         const std::vector<std::string>& own_addresses,
                                         size_t rails, bool device_memory);

// Whether the offer takes device memory in a card: software would copy through the host.
bool takes_device_memory(const fi_info& info);

// Whether fi_read is faster than messages. False for datagrams made reliable in software: they
// segment both, and reads from a lost peer take long to fail.
bool reads_memory(const fi_info& info);

// Whether the offer reaches other hosts.
bool reaches_hosts(const fi_info& info);

}  // namespace hccl_like

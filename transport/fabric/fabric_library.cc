#include "transport/fabric/fabric_library.h"

#include <dlfcn.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <tuple>

#include "core/base/error.h"
#include "transport/network/address.h"

namespace hccl_like {
namespace {

template <class Function>
bool bind(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

// Empty on success, else the error.
std::string bind_all(void* handle, FabricLibrary& library) {
  const bool complete =
      bind(handle, library.getinfo, "fi_getinfo") &&
      bind(handle, library.freeinfo, "fi_freeinfo") &&
      bind(handle, library.dupinfo, "fi_dupinfo") && bind(handle, library.fabric, "fi_fabric") &&
      bind(handle, library.version, "fi_version") && bind(handle, library.strerror, "fi_strerror");
  if (!complete) return library.path + " is not libfabric";
  if (library.version() < kFabricVersion)
    return library.path + " is libfabric " + library.version_text() +
           ", and 1.17 is the oldest that serves";
  return "";
}

FabricLibrary load(const std::string& setting, const std::vector<std::string>& hints) {
  std::vector<std::string> paths{setting};
  if (setting.empty()) {
    paths = {"libfabric.so.1", "libfabric.so.2"};
    paths.insert(paths.end(), hints.begin(), hints.end());
  }
  std::string tried;
  for (const std::string& path : paths) {
    FabricLibrary library{};
    library.path = path;
    std::string why;
    if (void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr)
      why = bind_all(handle, library);
    else if (const char* const text = ::dlerror(); text != nullptr)
      why = text;
    if (why.empty()) return library;
    tried += (tried.empty() ? "" : "; ") + why;
  }
  throw_error(ErrorCode::kUnsupported,
              "no libfabric can be loaded: " + tried +
                  "; install libfabric1, or name the library in HCCL_LIKE_FABRIC_LIBRARY");
}

FabricInfo hints_for(const FabricLibrary& library, const std::string& provider,
                     uint64_t more_caps) {
  FabricInfo hints(library.dupinfo(nullptr), FreeInfo{&library});
  hints->caps = FI_MSG | FI_TAGGED | more_caps;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  if ((more_caps & FI_HMEM) != 0) hints->domain_attr->mr_mode |= FI_MR_HMEM;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  return hints;
}

// Index of the offer's address among the published ones; their number if it is none of them.
size_t place_of(const fi_info& info, const std::vector<std::string>& own) {
  if (info.src_addr == nullptr ||
      (info.addr_format != FI_SOCKADDR_IN && info.addr_format != FI_SOCKADDR_IN6))
    return own.size();
  const auto address = Address::of(static_cast<const sockaddr*>(info.src_addr));
  const auto found = address ? std::find(own.begin(), own.end(), address->to_string()) : own.end();
  return static_cast<size_t>(found - own.begin());
}

}  // namespace

std::string FabricLibrary::version_text() const {
  return std::to_string(FI_MAJOR(version())) + "." + std::to_string(FI_MINOR(version()));
}

const FabricLibrary& load_fabric(const std::string& setting,
                                 const std::vector<std::string>& hints) {
  static std::mutex mutex;
  static const FabricLibrary* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) loaded = new FabricLibrary(load(setting, hints));
  return *loaded;
}

// libfabric 1.17's shared-memory provider claims to reach other hosts, so check its addresses.
bool reaches_hosts(const fi_info& info) {
  const std::string_view address = info.addr_format == FI_ADDR_STR && info.src_addr != nullptr
                                       ? static_cast<const char*>(info.src_addr)
                                       : "";
  const bool one_host = address.starts_with("fi_shm://") || address.starts_with("fi_sm2://");
  return !one_host && ((info.caps & FI_REMOTE_COMM) != 0 || (info.caps & FI_LOCAL_COMM) == 0);
}

bool reads_memory(const fi_info& info) {
  return (info.caps & FI_RMA) != 0 && info.ep_attr->protocol != FI_PROTO_RXD;
}

bool takes_device_memory(const fi_info& info) {
  return (info.caps & FI_HMEM) != 0 && info.nic != nullptr && reads_memory(info);
}

std::vector<FabricInfo> choose_providers(const FabricLibrary& library, const std::string& provider,
                                         const std::vector<std::string>& own_addresses,
                                         size_t rails, bool device_memory) {
  // Device memory access first, then memory access: the first of equals wins.
  struct Wish {
    uint32_t version;
    uint64_t caps;
    bool (*serves)(const fi_info& info);
  };
  constexpr uint64_t kReads = FI_RMA | FI_READ | FI_REMOTE_READ;
  std::vector<Wish> wanted{{kFabricVersion, kReads, reads_memory},
                           {kFabricVersion, 0, [](const fi_info&) { return true; }}};
  if (device_memory && library.version() >= kFabricVersionOfFiles)
    wanted.insert(wanted.begin(), {kFabricVersionOfFiles, kReads | FI_HMEM, takes_device_memory});
  std::vector<FabricInfo> lists;
  int status = 0;
  for (const Wish& request : wanted) {
    const FabricInfo hints = hints_for(library, provider, request.caps);
    fi_info* list = nullptr;
    status = library.getinfo(request.version, nullptr, nullptr, 0, hints.get(), &list);
    lists.emplace_back(list, FreeInfo{&library});
  }
  if (status != 0)
    throw_error(ErrorCode::kUnsupported,
                "libfabric " + library.version_text() + " (" + library.path + ") has " +
                    (provider.empty() ? "no provider that serves" : "no provider " + provider) +
                    ": " + library.strerror(-status) + "; 'fi_info' lists those there are");
  // Offers that reach other hosts, then cards, then by address, then in the library's order.
  const auto rank = [&](const fi_info& info) {
    const bool local = !reaches_hosts(info);
    return std::tuple(local, info.nic == nullptr, place_of(info, own_addresses));
  };
  const fi_info* best = nullptr;
  const fi_info* beside_best = nullptr;  // the list that contains it
  for (size_t i = 0; i < lists.size(); ++i)
    for (const fi_info* one = lists[i].get(); one != nullptr; one = one->next)
      if (wanted[i].serves(*one) && (best == nullptr || rank(*one) < rank(*best))) {
        best = one;
        beside_best = lists[i].get();
      }
  std::vector<FabricInfo> chosen;
  const auto take = [&](const fi_info& info) {
    chosen.emplace_back(library.dupinfo(&info), FreeInfo{&library});
  };
  take(*best);
  const size_t most = rails > 0 ? rails : best->nic != nullptr ? SIZE_MAX : 1;
  const auto further = [&](const fi_info& info) {
    const bool alike = info.caps == best->caps && (info.nic == nullptr) == (best->nic == nullptr) &&
                       reaches_hosts(info) && info.addr_format == best->addr_format &&
                       ::strcmp(info.fabric_attr->prov_name, best->fabric_attr->prov_name) == 0;
    const bool ours = info.nic != nullptr || place_of(info, own_addresses) < own_addresses.size();
    return alike && ours && std::ranges::none_of(chosen, [&](const FabricInfo& one) {
             return ::strcmp(one->domain_attr->name, info.domain_attr->name) == 0;
           });
  };
  for (const fi_info* one = beside_best; one != nullptr && chosen.size() < most; one = one->next)
    if (further(*one)) take(*one);
  return chosen;
}

}  // namespace hccl_like

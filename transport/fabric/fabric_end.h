#pragma once
// One end-point of libfabric: reliable datagrams, tagged, with progress made by whoever drives.
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>
#include <string>
#include <vector>

#include "device/exported_memory.h"
#include "transport/fabric/fabric_library.h"
#include "transport/fabric/registration_cache.h"

namespace hccl_like {

// Closes an object of libfabric.
struct CloseFid {
  template <class Object>
  void operator()(Object* object) const {
    fi_close(&object->fid);
  }
};
template <class Object>
using FabricObject = std::unique_ptr<Object, CloseFid>;

// An operation under way. libfabric writes into its beginning.
struct FabricOperation {
  fi_context2 context{};
  bool done = true;
  bool failed = false;
  std::string* broken = nullptr;  // of the slots: where an error is noted
};

// Memory and operations of one port. They outlive it as long as libfabric may touch them.
struct FabricSlots {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> memory;     // not touched before it is used
  FabricObject<fid_mr> registration;  // null where the provider needs none
  std::vector<FabricOperation> operations;
  std::string broken;
};

// Used by one thread at a time.
class FabricEnd : private Registrar {
 public:
  // Throws kUnsupported, with the function that failed.
  FabricEnd(const FabricLibrary& library, FabricInfo info);
  ~FabricEnd() override;

  const fi_info& info() const { return *info_; }
  const FabricLibrary& library() const { return library_; }
  fid_ep* endpoint() const { return endpoint_.get(); }
  // As fi_getname gives it.
  const std::string& address() const { return address_; }
  // Throws kPeerLost if it is not an address of this provider.
  fi_addr_t insert(const std::string& address);
  void remove(fi_addr_t peer);
  // Memory for so many slots, with an operation each.
  std::unique_ptr<FabricSlots> make_slots(size_t slots, size_t bytes);
  // Memory that peers read, and that is read into.
  RegistrationCache& registrations() { return registrations_; }
  // The words by which a peer reads what was registered.
  struct Window {
    uint64_t base = 0, key = 0;
  };
  Window window(const RegistrationCache::Registration& registration, const std::byte* data) const;

  // Closes the end-point, whatever is under way: from then on it touches no memory, and progress()
  // notes nothing.
  void shut(std::string why);
  // Why it was; empty while it is open.
  const std::string& shut() const { return shut_; }

  // Takes over what operations under way may still touch.
  void bury(std::unique_ptr<FabricSlots> slots) { buried_.push_back(std::move(slots)); }

  // Notes which operations are done.
  void progress();

 private:
  void* add(const std::byte* data, size_t bytes) override;
  void remove(void* registration) override;
  fid_mr* enroll(const void* data, size_t bytes, uint64_t access);
  fid_mr* enroll(const ExportedMemory& memory, const std::byte* data, size_t bytes);
  fid_mr* enable(fid_mr* registration);
  void check(const char* function, long status) const;
  void on_error();

  const FabricLibrary& library_;
  const FabricInfo info_;
  FabricObject<fid_fabric> fabric_;
  FabricObject<fid_domain> domain_;
  FabricObject<fid_av> addresses_;
  FabricObject<fid_cq> completions_;
  FabricObject<fid_ep> endpoint_;
  std::string address_;
  uint64_t next_key_ = 1;
  std::string shut_;
  std::vector<std::unique_ptr<FabricSlots>> buried_;
  RegistrationCache registrations_;
};

// A peer in an end's table of addresses.
class FabricPeer {
 public:
  FabricPeer(FabricEnd& end, const std::string& address)
      : end_(end), handle_(end.insert(address)) {}
  ~FabricPeer() {
    if (!kept_) end_.remove(handle_);
  }
  FabricPeer(const FabricPeer&) = delete;
  FabricPeer& operator=(const FabricPeer&) = delete;

  FabricEnd& end() const { return end_; }
  fi_addr_t handle() const { return handle_; }
  // Something is under way to it, and stays so.
  void keep() { kept_ = true; }

 private:
  FabricEnd& end_;
  const fi_addr_t handle_;
  bool kept_ = false;
};

}  // namespace hccl_like

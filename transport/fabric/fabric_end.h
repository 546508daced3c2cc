#pragma once
// One libfabric endpoint: reliable datagrams, tagged, with progress by the driver.
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

struct CloseFid {
  template <class Object>
  void operator()(Object* object) const {
    fi_close(&object->fid);
  }
};
template <class Object>
using FabricObject = std::unique_ptr<Object, CloseFid>;

// An operation in flight. libfabric writes into `context`, which must come first.
struct FabricOperation {
  fi_context2 context{};
  bool done = true;
  bool failed = false;
  std::string* broken = nullptr;  // error text of the slots
};

// Memory and operations of one port. They outlive the port while libfabric may touch them.
struct FabricSlots {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> memory;     // pages untouched before first use
  FabricObject<fid_mr> registration;  // null if the provider needs none
  std::vector<FabricOperation> operations;
  std::string broken;
};

// Used by one thread at a time.
class FabricEnd : private Registrar {
 public:
  // Throws kUnsupported with the failed function.
  FabricEnd(const FabricLibrary& library, FabricInfo info);
  ~FabricEnd() override;

  const fi_info& info() const { return *info_; }
  const FabricLibrary& library() const { return library_; }
  fid_ep* endpoint() const { return endpoint_.get(); }
  // From fi_getname.
  const std::string& address() const { return address_; }
  // Throws kPeerLost if `address` is not valid for this provider.
  fi_addr_t insert(const std::string& address);
  void remove(fi_addr_t peer);
  // Allocates `slots` slots of `bytes` bytes, with one operation each.
  std::unique_ptr<FabricSlots> make_slots(size_t slots, size_t bytes);
  RegistrationCache& registrations() { return registrations_; }
  // The address and key with which a peer reads registered memory.
  struct Window {
    uint64_t base = 0, key = 0;
  };
  Window window(const RegistrationCache::Registration& registration, const std::byte* data) const;

  // Closes the endpoint despite operations in flight: no memory access or completion follows.
  void shut(std::string why);
  bool is_open() const { return endpoint_ != nullptr; }
  // The reason for the last shut().
  const std::string& why_shut() const { return why_shut_; }
  // Opens a shut endpoint again, with the same address. False if that is not possible.
  bool reopen();
  // Counts the openings.
  uint64_t opening() const { return opening_; }

  // Takes ownership of slots that operations in flight may still touch.
  void bury(std::unique_ptr<FabricSlots> slots) { buried_.push_back(std::move(slots)); }

  void progress();

 private:
  void* add(const std::byte* data, size_t bytes) override;
  void remove(void* registration) override;
  fid_mr* enroll(const void* data, size_t bytes, uint64_t access);
  fid_mr* enroll(const ExportedMemory& memory, const std::byte* data, size_t bytes);
  fid_mr* enable(fid_mr* registration);
  FabricObject<fid_ep> make_endpoint(fi_info& info, std::string& address) const;
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
  std::string why_shut_;
  uint64_t opening_ = 1;
  std::vector<std::unique_ptr<FabricSlots>> buried_;
  RegistrationCache registrations_;
};

// A peer in an endpoint's address table.
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
  // Keeps the table entry for good, for operations still in flight to the peer.
  void keep() { kept_ = true; }

 private:
  FabricEnd& end_;
  const fi_addr_t handle_;
  bool kept_ = false;
};

}  // namespace hccl_like

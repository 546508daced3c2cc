#pragma once
// One end-point of libfabric: reliable datagrams, tagged, with progress made by whoever drives.
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>
#include <string>
#include <vector>

#include "transport/fabric/fabric_library.h"

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
class FabricEnd {
 public:
  // Throws kUnsupported, with the function that failed.
  FabricEnd(const FabricLibrary& library, FabricInfo info);
  ~FabricEnd();

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
  // Takes over what operations under way may still touch.
  void bury(std::unique_ptr<FabricSlots> slots) { buried_.push_back(std::move(slots)); }

  // Notes which operations are done.
  void progress();

 private:
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
  std::vector<std::unique_ptr<FabricSlots>> buried_;
};

}  // namespace hccl_like

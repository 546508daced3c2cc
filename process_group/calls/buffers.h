#pragma once
// Maps every tensor of a request to contiguous memory that host code can address.
#include <optional>
#include <utility>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/engine/operation.h"
#include "process_group/calls/request.h"
#include "process_group/device/device_access.h"

namespace hccl_like {

// Copies to make (first = second) after the operations have completed.
using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;

struct Written {
  Region region;
  bool boolean = false;
};

// Uses a tensor in place if it is contiguous and host code can address it. All other tensors
// (strided views, lazily conjugated tensors, unaddressable device memory) go through temporaries.
// Dense permuted tensors too: ranks with other strides would silently get wrong results.
//
// Use under the guard of the current stream: copies follow its order. Requests' tensors must
// outlive this object.
class Buffers {
 public:
  // `access` and `communicator` must outlive this object. `in_stream`: the call begins in stream
  // order, so copies into temporaries need not be over before.
  Buffers(const DeviceAccess& access, const Communicator& communicator, bool in_stream)
      : access_(access),
        in_stream_(in_stream),
        communicator_(communicator),
        rank_(communicator.rank()),
        ranks_(communicator.size()) {}

  // Returns the call for `request` without a timeout. Copies inputs into temporaries where needed.
  Call call(const Request& request);

  Copies take_copies_back() { return std::move(copies_back_); }
  // Input-only temporaries. They must outlive the operation.
  std::vector<at::Tensor> take_temporaries() { return std::move(temporaries_); }
  std::vector<Written> take_written() { return std::move(written_); }
  // Host mappings of the tensors. Destroying an alias unmaps it.
  std::vector<Alias> take_aliases() { return std::move(aliases_); }

 private:
  struct Known {
    const at::Tensor* tensor;
    Region region;
    at::Tensor temporary;  // undefined if the tensor is used in place
    bool copied_back;
  };
  using Regions = std::vector<Region>;

  Regions reach_all(const Side& side, bool written);
  Region reach(const at::Tensor& tensor, bool written);
  Region private_copy(const at::Tensor& tensor);
  Region map(const at::Tensor& tensor);
  const at::Tensor* memory_of(const Side& side) const;
  const at::Tensor* memory_of(const at::Tensor& tensor) const;

  const DeviceAccess& access_;
  const bool in_stream_;
  const Communicator& communicator_;
  int rank_;
  int ranks_;
  std::vector<Known> known_;
  Copies copies_back_;
  std::vector<at::Tensor> temporaries_;
  std::vector<Written> written_;
  std::vector<Alias> aliases_;
};

// The call for a request, without memory and timeout.
Call bare_call(const Request& request);

// Like Buffers::call(), but without temporaries: each side is at most one plain host tensor, and
// the sides are disjoint or in place. Returns nothing for all other requests.
std::optional<Call> plain_call(const Request& request, int rank, int ranks);

// Copies tensors in the order of the current stream, outside autograd.
void copy_all(const Copies& copies, bool non_blocking);

}  // namespace hccl_like

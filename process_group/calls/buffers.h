#pragma once
// Finds, for every tensor of a request, contiguous memory that host code can address.
#include <optional>
#include <utility>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/engine/operation.h"
#include "process_group/calls/request.h"
#include "process_group/device/device_access.h"

namespace hccl_like {

// What must be copied (first = second) once the operations are done.
using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;

// Memory that a call writes.
struct Written {
  Region region;
  bool boolean = false;
};

// A tensor that is contiguous and directly reachable is used as it is. Any other goes through a
// temporary: a strided view, a lazily conjugated one, memory of a device that host code cannot
// address. Memory order is never taken for logical order, though a dense permuted tensor would be
// cheaper that way: other ranks may have other strides, and nobody could tell that the result is
// wrong.
//
// Everything here happens in the order of the current stream: to be made and used under its guard.
// The tensors of the requests must outlive this object.
class Buffers {
 public:
  // For calls of `communicator` on the device of `access`; both outlive this object.
  Buffers(const DeviceAccess& access, const Communicator& communicator)
      : access_(access),
        communicator_(communicator),
        rank_(communicator.rank()),
        ranks_(communicator.size()) {}

  // The call for `request`, all but its time-out. Copies inputs into temporaries where needed.
  Call call(const Request& request);

  Copies take_copies_back() { return std::move(copies_back_); }
  // Temporaries that are only read; they must live as long as the operation runs.
  std::vector<at::Tensor> take_temporaries() { return std::move(temporaries_); }
  std::vector<Written> take_written() { return std::move(written_); }
  // Views of the tensors' memory, which end when destroyed.
  std::vector<Alias> take_aliases() { return std::move(aliases_); }

 private:
  struct Known {
    const at::Tensor* tensor;
    Region region;
    at::Tensor temporary;  // undefined if the tensor is used as it is
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
  const Communicator& communicator_;
  int rank_;
  int ranks_;
  std::vector<Known> known_;
  Copies copies_back_;
  std::vector<at::Tensor> temporaries_;
  std::vector<Written> written_;
  std::vector<Alias> aliases_;
};

// The call for a request, all but its memory and its time-out.
Call bare_call(const Request& request);

// The call for a request, all but its time-out, if its tensors are on the host and are used as they
// are: one or none a side, plain, apart from each other or in place. Nothing for any other request,
// which takes a Buffers.
std::optional<Call> plain_call(const Request& request, int rank, int ranks);

// Copies tensors in the order of the current stream, unseen by autograd.
void copy_all(const Copies& copies, bool non_blocking);

}  // namespace hccl_like

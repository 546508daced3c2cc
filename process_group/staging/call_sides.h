#pragma once
// The two sides of a request as device memory.
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "process_group/calls/buffers.h"
#include "process_group/calls/request.h"
#include "process_group/staging/device_side.h"

namespace hccl_like {

// Tensors that are not plain (contiguous, neither conjugate nor negative) have replacements: their
// content is copied there on the current stream, and from there at the end of the call.
struct CallSides {
  DeviceSide input, output;
  bool in_place = false;  // both sides are the same tensors, arranged alike
  bool reads = true;      // this rank's input is used
  bool writes = true;     // this rank's output is written
  std::vector<std::pair<at::Tensor, at::Tensor>> fresh;  // a tensor and its replacement
  Copies copies_back;                                    // at the end of the call

  // Returns the plain tensors of the input. On the device's current stream.
  std::vector<at::Tensor> set(const Request& request, int rank, int ranks);
  // Makes each side one range of device memory, apart from the other or the same. Returns the
  // memory that this takes. `exchanges`: the call sends and receives different data.
  std::vector<at::Tensor> pack(c10::Device device, bool exchanges);
  // Only the sizes of a layout: of a call whose memory the host does not address.
  static Layout sizes(const DeviceSide& side, DataType type);

 private:
  std::vector<at::Tensor> plain(const Side& side, bool written);
};

}  // namespace hccl_like

#include "process_group/issue/timing.h"

#include <algorithm>

#include "collectives/selection/choose.h"
#include "core/base/error.h"

namespace hccl_like {
namespace {

uint64_t bytes_of(const Side& side) {
  uint64_t sum = 0;
  for (const at::Tensor& tensor : side.tensors) sum += tensor.nbytes();
  return sum;
}

// Bytes of all chunks together, as choose() expects.
uint64_t payload(const Request& request, uint64_t size) {
  switch (request.collective) {
    case Collective::kGather:
      return bytes_of(request.input) * size;
    case Collective::kScatter:
      return bytes_of(request.output) * size;
    default:
      return std::max(bytes_of(request.input), bytes_of(request.output));
  }
}

uint64_t estimate(const Request& request, const Communicator& communicator) {
  const int size = communicator.size();
  if (size < 2) return 0;
  const Config& config = communicator.engine().config();
  const Algorithm* const own = communicator.own(request.collective);
  const ChooseOptions options{
      .forced = own != nullptr ? own->name : config.algo.find(name(request.collective)),
      .own = own,
      .slice_bytes = config.slice_bytes,
      .slice_window = communicator.topology().slices_at_once(config.slice_window),
      .deterministic = config.deterministic};
  return choose(request.collective, payload(request, static_cast<uint64_t>(size)),
                size_of(request.type), communicator.topology(), options)
      .estimate_ps;
}

}  // namespace

void TimeEstimate::begin() {
  std::lock_guard lock(mutex_);
  if (active_) throw_misuse("the time of calls is being estimated already; end that first");
  picoseconds_ = 0;
  active_ = true;
}

double TimeEstimate::end() {
  std::lock_guard lock(mutex_);
  if (!active_) throw_misuse("no time is being estimated; begin with _start_time_estimate()");
  active_ = false;
  return static_cast<double>(picoseconds_) * 1e-6;
}

void TimeEstimate::add(const Issue& issue, const Communicators& communicators) {
  std::lock_guard lock(mutex_);
  for (const Request& request : issue.requests) {
    picoseconds_ += estimate(request, *communicators.of(issue.device, request.collective));
  }
}

}  // namespace hccl_like

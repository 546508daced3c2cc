// Streams, host waits in stream order, and events.
#include <thread>

#include "device/cuda/entries.h"

namespace hccl_like::cuda {
namespace {

[[noreturn]] void refuse(int status, const char* sentence) { throw Failure{status, sentence}; }

CUstream real_stream(hcd_stream stream) {
  if (stream == 0) refuse(HCD_INVALID, "this entry needs a stream");
  return stream_of(stream);
}

// torch's stream ids: 0 is the default stream, an even id is the handle of an external stream, an
// odd id is a torch stream whose handle only the device guard knows.
int stream_from_torch(int device, int64_t stream_id, void* native, hcd_stream* out) {
  return run(device, [&] {
    if (native != nullptr)
      *out = reinterpret_cast<hcd_stream>(native);
    else if (stream_id == 0)
      *out = reinterpret_cast<hcd_stream>(CU_STREAM_LEGACY);
    else if (stream_id % 2 == 0)
      *out = static_cast<hcd_stream>(stream_id);
    else
      refuse(HCD_UNSUPPORTED, "this torch does not tell the handles of its CUDA streams");
  });
}

int stream_sync(int device, hcd_stream stream) {
  return run(device, [&] { HCCL_LIKE_CUDA(cuStreamSynchronize, stream_of(stream)); });
}

int host_func(int device, hcd_stream stream, void (*fn)(void*), void* arg) {
  return run(device, [&] { queue_host_function(device, real_stream(stream), fn, arg); });
}

// The device address of a host word, or 0 if the device cannot access it.
CUdeviceptr seen_by_device(const volatile uint64_t* word) {
  CUdeviceptr at = 0;
  void* const host = const_cast<uint64_t*>(word);
  return driver().cuMemHostGetDevicePointer_(&at, host, 0) == CUDA_SUCCESS ? at : 0;
}

// A word that the device cannot access: the host polls it.
struct Watched {
  uint64_t* word;
  uint64_t value;
};
void wait_for(void* arg) {
  const auto watched = static_cast<Watched*>(arg);
  while (__atomic_load_n(watched->word, __ATOMIC_ACQUIRE) < watched->value)
    std::this_thread::yield();
  delete watched;
}
void store(void* arg) {
  const auto watched = static_cast<Watched*>(arg);
  __atomic_store_n(watched->word, watched->value, __ATOMIC_RELEASE);
  delete watched;
}

int stream_wait_value(int device, hcd_stream stream, const volatile uint64_t* word,
                      uint64_t value) {
  return run(device, [&] {
    const CUstream queue = real_stream(stream);
    if (const CUdeviceptr at = seen_by_device(word))
      HCCL_LIKE_CUDA(cuStreamWaitValue64, queue, at, value, CU_STREAM_WAIT_VALUE_GEQ);
    else
      queue_host_function(device, queue, wait_for, new Watched{const_cast<uint64_t*>(word), value});
  });
}

int stream_write_value(int device, hcd_stream stream, volatile uint64_t* word, uint64_t value) {
  return run(device, [&] {
    const CUstream queue = real_stream(stream);
    if (const CUdeviceptr at = seen_by_device(word))
      HCCL_LIKE_CUDA(cuStreamWriteValue64, queue, at, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    else
      queue_host_function(device, queue, store, new Watched{const_cast<uint64_t*>(word), value});
  });
}

int stream_create(int device, hcd_stream, int priority, hcd_stream* out) {
  return run(device, [&] {
    CUstream made = nullptr;
    HCCL_LIKE_CUDA(cuStreamCreateWithPriority, &made, CU_STREAM_NON_BLOCKING, -priority);
    *out = reinterpret_cast<hcd_stream>(made);
  });
}

int stream_destroy(int device, hcd_stream stream) {
  return run(device, [&] { HCCL_LIKE_CUDA(cuStreamDestroy, real_stream(stream)); });
}

CUevent event_of(hcd_event event) { return reinterpret_cast<CUevent>(event); }

int event_record(int device, hcd_stream stream, hcd_event* out) {
  return run(device, [&] {
    CUevent made = nullptr;
    HCCL_LIKE_CUDA(cuEventCreate, &made, CU_EVENT_DISABLE_TIMING);
    // For stream 0: an event never recorded counts as complete.
    if (stream != 0) {
      const CUresult recorded = driver().cuEventRecord_(made, stream_of(stream));
      if (recorded != CUDA_SUCCESS) driver().cuEventDestroy_(made);
      check(recorded, "cuEventRecord");
    }
    *out = reinterpret_cast<hcd_event>(made);
  });
}

int stream_wait_event(int device, hcd_stream stream, hcd_event event) {
  return run(device, [&] {
    if (stream == 0)
      HCCL_LIKE_CUDA(cuEventSynchronize, event_of(event));
    else
      HCCL_LIKE_CUDA(cuStreamWaitEvent, stream_of(stream), event_of(event), CU_EVENT_WAIT_DEFAULT);
  });
}

int event_query(int device, hcd_event event) {
  return run(device, [&] { HCCL_LIKE_CUDA(cuEventQuery, event_of(event)); });
}

int event_sync(int device, hcd_event event) {
  return run(device, [&] { HCCL_LIKE_CUDA(cuEventSynchronize, event_of(event)); });
}

int event_destroy(int device, hcd_event event) {
  return run(device, [&] { HCCL_LIKE_CUDA(cuEventDestroy, event_of(event)); });
}

}  // namespace

void add_streams(hcd_api& api) {
  api.stream_from_torch = stream_from_torch;
  api.stream_sync = stream_sync;
  api.host_func = host_func;
  api.stream_wait_value = stream_wait_value;
  api.stream_write_value = stream_write_value;
  api.stream_create = stream_create;
  api.stream_destroy = stream_destroy;
  api.event_record = event_record;
  api.stream_wait_event = stream_wait_event;
  api.event_query = event_query;
  api.event_sync = event_sync;
  api.event_destroy = event_destroy;
}

}  // namespace hccl_like::cuda

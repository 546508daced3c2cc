#include "plugin/plugin_entry.h"

#include "base/error.h"
#include "memory/handle.h"
#include "plugin/ipc.h"
#include "runtime/runtime.h"
#include "runtime/traffic.h"

namespace torch_sim {
namespace {

thread_local std::string last_error_text;

const std::byte* address_of(hcd_ref ref) {
  return static_cast<const std::byte*>(from_handle(ref.base)) + ref.offset;
}

}  // namespace

int plugin_failure() {
  const auto failed = [](int status, const std::exception& error) {
    last_error_text = error.what();
    return status;
  };
  try {
    throw;
  } catch (const PeerUnreachable& error) {
    return failed(HCD_UNSUPPORTED, error);
  } catch (const NotSupported& error) {
    return failed(HCD_UNSUPPORTED, error);
  } catch (const std::invalid_argument& error) {
    return failed(HCD_INVALID, error);
  } catch (const OutOfMemory& error) {
    return failed(HCD_OUT_OF_MEMORY, error);
  } catch (const std::exception& error) {
    return failed(HCD_DEVICE_LOST, error);
  }
}

const char* plugin_last_error() { return last_error_text.c_str(); }

int with_arena_of(int device, hcd_ref ref, size_t bytes,
                  const std::function<int(const Arena& arena, uint64_t at)>& use) {
  const std::byte* at = address_of(ref);
  return Runtime::get().device(device).memory().with_arena(at, bytes, [&](const Arena* arena) {
    if (!arena)
      throw std::invalid_argument("sim: the range is not memory of device " +
                                  std::to_string(device));
    return use(*arena, static_cast<uint64_t>(at - arena->begin()));
  });
}

void* kernel_address(int device, hcd_ref ref, size_t bytes) {
  if (bytes > 0) with_arena_of(device, ref, bytes, [](const Arena&, uint64_t) { return HCD_OK; });
  return Runtime::get().space().to_kernel(address_of(ref));
}

Stream* stream_of(int device, hcd_stream stream) {
  auto* found = reinterpret_cast<Stream*>(stream);
  if (found && found->device() != device)
    throw std::invalid_argument("sim: the stream belongs to device " +
                                std::to_string(found->device()) + ", not to device " +
                                std::to_string(device));
  return found;
}

Stream& stream_or_throw(int device, hcd_stream stream) {
  if (Stream* found = stream_of(device, stream)) return *found;
  throw std::invalid_argument("sim: this entry needs a stream");
}

void submit(int device, hcd_stream stream, size_t bytes, const Stream::Work& work) {
  Stream* queue = stream_of(device, stream);
  if (!queue)
    work();
  else if (bytes <= short_work())
    queue->enqueue_or_run(work);
  else
    queue->enqueue(work);
}

}  // namespace torch_sim

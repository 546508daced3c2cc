#include "glue/resize_storage.h"

#include <algorithm>
#include <cstring>

#include "glue/convert.h"
#include "glue/device_allocator.h"
#include "memory/handle.h"
#include "memory/strict.h"
#include "runtime/traffic.h"

namespace torch_sim {

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const int device = index_of(storage.device());
  c10::DataPtr fresh = allocate_on(device, bytes);
  if (const size_t kept = std::min(bytes, storage.nbytes()); kept > 0 && storage.data()) {
    Stream& stream = current_stream(device);
    const AddressSpace& space = Runtime::get().space();
    void *to = space.to_kernel(fresh.get_context()),
         *from = space.to_kernel(from_handle(storage.data()));
    stream.enqueue_or_run([=] {
      WorkTime time(device);
      time.copy(to, from, kept);
      const Window writes(to, kept), reads(from, kept);
      std::memcpy(to, from, kept);
    });
    Runtime::get().device(device).memory().record_use(storage.data_ptr().get_context(), stream);
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

}  // namespace torch_sim

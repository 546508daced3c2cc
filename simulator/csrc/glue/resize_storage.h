#pragma once

#include <c10/core/StorageImpl.h>

namespace torch_sim {

// Gives a storage of the device that many bytes and keeps what fits, in the order of the device's
// current stream.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

}  // namespace torch_sim

#pragma once

namespace torch_sim {

// What torch gets as the address of device memory: the device's pointer itself or, with
// TORCH_SIM_OPAQUE=1, a handle as runtimes with buffer objects give it. Nothing can be added to a
// handle: whoever takes data_ptr() for an address gets somebody else's memory or none. Null stays
// null.
void* to_handle(void* pointer);
void* from_handle(const void* handle);

}  // namespace torch_sim

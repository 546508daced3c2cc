#pragma once

namespace torch_sim {

// Torch's address of device memory: the device's pointer or, with TORCH_SIM_OPAQUE=1, a handle as
// runtimes with buffer objects give it. A handle supports no pointer arithmetic: a caller that
// takes data_ptr() for an address gets memory of another buffer or none. Null stays null.
void* to_handle(void* pointer);
void* from_handle(const void* handle);

}  // namespace torch_sim

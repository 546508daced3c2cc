#pragma once
// How processes of one host map each other's host memory: the part of the host's plugin table that
// does it.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/device.h"
#include "device/host/shared_file.h"
#include "device/plugin.h"

namespace hccl_like {

// The handle by which host_api()'s ipc_open maps the file. Memory that SharedMemory made needs no
// such help: ipc_export knows it by its address.
hcd_ipc_handle handle_of(const SharedFileToken& file);

// What ipc_export says of a range, without a sentence where it lies in no SharedMemory: that costs
// a few nanoseconds.
std::optional<ExportedRange> shared_range(const void* at, size_t bytes);

namespace host {

// Entries of the table; see device/plugin.h. ipc_export takes ranges of SharedMemory, those of
// SharedPool among them.
int ipc_export(int device, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle, uint64_t* offset);
int ipc_open(int device, const hcd_ipc_handle* handle, void** host, size_t* bytes);
int ipc_close(int device, void* host);
int ipc_lives(int device, const hcd_ipc_handle* handle);

}  // namespace host
}  // namespace hccl_like

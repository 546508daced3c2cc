#pragma once
// The ipc_ entries of the host's plugin table: processes of one host map each other's host memory.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/device.h"
#include "device/host/shared_file.h"
#include "device/plugin.h"

namespace hccl_like {

// The handle with which host_api()'s ipc_open maps the file. Not needed for SharedMemory:
// ipc_export finds it by address.
hcd_ipc_handle handle_of(const SharedFileToken& file);

// As ipc_export, without an error message outside any SharedMemory: takes a few nanoseconds.
std::optional<ExportedRange> shared_range(const void* at, size_t bytes);

namespace host {

// Table entries (device/plugin.h). ipc_export accepts ranges of SharedMemory, including SharedPool.
int ipc_export(int device, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle, uint64_t* offset);
int ipc_open(int device, const hcd_ipc_handle* handle, void** host, size_t* bytes);
int ipc_close(int device, void* host);
int ipc_lives(int device, const hcd_ipc_handle* handle);

}  // namespace host
}  // namespace hccl_like

#include "device/host/host_ipc.h"

#include <cstring>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/base/error.h"
#include "device/host/host_error.h"
#include "device/host/shared_memory.h"

namespace hccl_like {
namespace {

enum class Kind : uint64_t { kMemory = 0x6d656d2d74736f68, kFile = 0x6c69662d74736f68 };

template <class Token>
hcd_ipc_handle pack(Kind kind, const Token& token) {
  static_assert(std::is_trivially_copyable_v<Token>);
  static_assert(sizeof kind + sizeof token <= sizeof(hcd_ipc_handle));
  hcd_ipc_handle handle{};
  std::memcpy(handle.bytes, &kind, sizeof kind);
  std::memcpy(handle.bytes + sizeof kind, &token, sizeof token);
  return handle;
}

template <class Token>
Token unpack(const hcd_ipc_handle& handle) {
  Token token;
  std::memcpy(&token, handle.bytes + sizeof(Kind), sizeof token);
  return token;
}

Kind kind_of(const hcd_ipc_handle& handle) {
  Kind kind;
  std::memcpy(&kind, handle.bytes, sizeof kind);
  return kind;
}

using Opened = std::variant<SharedMemory, Mapping>;

Opened open(const hcd_ipc_handle& handle) {
  switch (kind_of(handle)) {
    case Kind::kMemory:
      return SharedMemory::open(unpack<SharedMemoryToken>(handle));
    case Kind::kFile:
      return open_shared_file(unpack<SharedFileToken>(handle));
  }
  throw_error(ErrorCode::kMismatch, "this is not a handle of host memory");
}

// Never freed: the system closes open files at process exit.
struct Table {
  std::mutex mutex;
  std::map<void*, Opened> opened;
};
Table& table() {
  static Table& instance = *new Table;
  return instance;
}

int status_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kSystem:
      return HCD_UNSUPPORTED;  // the host forbids it
    default:
      return HCD_INVALID;
  }
}

}  // namespace

hcd_ipc_handle handle_of(const SharedFileToken& file) { return pack(Kind::kFile, file); }

std::optional<ExportedRange> shared_range(const void* at, size_t bytes) {
  const auto place = SharedMemory::find(at, bytes);
  if (!place) return std::nullopt;
  return ExportedRange{pack(Kind::kMemory, place->token), place->offset};
}

namespace host {

int ipc_export(int, hcd_ref ref, size_t bytes, hcd_ipc_handle* handle, uint64_t* offset) {
  const auto range = shared_range(static_cast<std::byte*>(ref.base) + ref.offset, bytes);
  if (!range) return fail(HCD_UNSUPPORTED, "the range does not lie in shared memory");
  *handle = range->handle;
  *offset = range->offset;
  return HCD_OK;
}

int ipc_open(int, const hcd_ipc_handle* handle, void** host, size_t* bytes) {
  try {
    Opened opened = open(*handle);
    std::visit(
        [&](const auto& memory) {
          *host = memory.data();
          *bytes = memory.size();
        },
        opened);
    Table& all = table();
    std::lock_guard lock(all.mutex);
    all.opened.emplace(*host, std::move(opened));
    return HCD_OK;
  } catch (const Exception& exception) {
    return fail(status_of(exception.error()), exception.error().message);
  }
}

int ipc_lives(int, const hcd_ipc_handle* handle) {
  switch (kind_of(*handle)) {
    case Kind::kMemory:
      return SharedMemory::exists(unpack<SharedMemoryToken>(*handle)) ? HCD_OK : HCD_INVALID;
    case Kind::kFile:
      return unpack<SharedFileToken>(*handle).is_open() ? HCD_OK : HCD_INVALID;
  }
  return HCD_INVALID;
}

int ipc_close(int, void* host) {
  decltype(Table::opened)::node_type closed;  // unmapped after the lock is released
  Table& all = table();
  std::lock_guard lock(all.mutex);
  closed = all.opened.extract(host);
  return closed.empty() ? fail(HCD_INVALID, "no memory is open at this address") : HCD_OK;
}

}  // namespace host
}  // namespace hccl_like

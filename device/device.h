#pragma once
// A device type as the upper layers see it: a plugin table with lifetime, errors and guards.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/fd.h"
#include "core/base/result.h"
#include "core/base/types.h"
#include "device/owned.h"
#include "device/plugin.h"
#include "device/reduce/reduce.h"
#include "device/word_functions.h"

namespace hccl_like {

struct DeviceInfo {
  uint64_t caps = 0;   // HCD_CAP_...
  int numa_node = -1;  // -1: unknown
  std::string uuid;    // empty: unknown
  std::string pci;     // empty: not on PCI

  bool has(uint64_t cap) const noexcept { return (caps & cap) != 0; }
};

// Consecutive bytes of device memory, or nothing.
struct DeviceRange {
  hcd_ref begin{};
  size_t bytes = 0;

  bool overlaps(const DeviceRange& other) const noexcept {
    return begin.base == other.begin.base && begin.offset < other.begin.offset + other.bytes &&
           other.begin.offset < begin.offset + bytes;
  }
};

// Memory that another process of this host may import, and the range's offset in the import.
struct ExportedRange {
  hcd_ipc_handle handle{};
  uint64_t offset = 0;
  // The owner's name for the allocation (transport/same_host/exports.h); 0: none.
  uint64_t name = 0;
};

// A file descriptor for memory that other devices may use, and the range's offset in it.
struct ExportedFile {
  Fd file;
  uint64_t offset = 0;
};

// Device memory allocated and freed as a whole.
struct DeviceAllocation {
  std::array<uint64_t, 2> identity{};  // unique in this process, for freed allocations too
  hcd_ref begin{};
  size_t bytes = 0;
  uint64_t offset = 0;      // of the queried range
  void* address = nullptr;  // at an address never used by host memory; null: none
  uint32_t hmem = 0;        // libfabric's fi_hmem_iface
};

// One initialised plugin with all its devices, indexed as in torch. Thread-safe. plugin.h lists the
// calls that may block: waiting, creation and release, and copies without HCD_CAP_ASYNC_COPY.
//
// An unsupported operation returns kUnsupported without calling the plugin; can_...() tells in
// advance. A plugin failure returns kDevice with the entry's name and the plugin's message. Must
// outlive all objects it made and all queued work.
class Device {
 public:
  // Loads and initialises a plugin library. Throws kDevice, with a remedy, on failure; kTimeout if
  // the plugin hangs. Never unloads: plugin threads may run its code until the process ends.
  static std::unique_ptr<Device> load(const std::string& library_path);

  // Initialises the plugin behind a table, which must outlive this object. Throws kDevice. `origin`
  // is for messages.
  explicit Device(const hcd_api& api, std::string origin = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The device type in torch, e.g. "sim".
  const std::string& name() const noexcept { return name_; }
  Result<DeviceInfo> info(int index) const;

  bool can_describe_itself() const noexcept { return api_.device_info != nullptr; }
  bool can_translate_streams() const noexcept { return api_.stream_from_torch != nullptr; }
  bool can_map() const noexcept { return api_.map != nullptr; }
  // By host_func, or else by word waits.
  bool can_queue_functions() const noexcept { return has_host_func() || can_wait_on_words(); }
  bool has_host_func() const noexcept { return api_.host_func != nullptr; }
  bool can_wait_on_words() const noexcept { return api_.stream_wait_value != nullptr; }
  bool can_export() const noexcept { return api_.ipc_export != nullptr; }
  bool can_tell_freed_exports() const noexcept { return can_export() && api_.ipc_lives != nullptr; }
  bool can_open_peers() const noexcept { return can_export() && api_.peer_open != nullptr; }
  bool can_make_streams() const noexcept { return api_.stream_create != nullptr; }
  bool can_record_events() const noexcept { return api_.event_record != nullptr; }
  bool can_copy_within() const noexcept { return api_.copy_d2d != nullptr; }
  bool can_reduce() const noexcept { return api_.reduce != nullptr; }
  bool can_reduce_many() const noexcept { return api_.reduce_many != nullptr; }
  bool can_all_reduce_small() const noexcept {
    return can_open_peers() && can_reduce_many() && api_.all_reduce_small != nullptr;
  }
  bool can_allocate() const noexcept { return api_.mem_alloc != nullptr; }
  bool can_allocate_host() const noexcept { return api_.host_alloc != nullptr; }
  bool can_register_host() const noexcept { return api_.host_register != nullptr; }
  bool can_export_files() const noexcept { return dmabuf_ != nullptr; }
  bool can_identify() const noexcept;

  // The plugin's stream for a torch stream id and its native handle (or null).
  Result<hcd_stream> stream_from_torch(int index, int64_t stream_id, void* native) const;
  // Blocks until all work queued so far is done and visible to the host.
  [[nodiscard]] std::optional<Error> synchronize(int index, hcd_stream stream) const;

  // In stream order. With HCD_CAP_ASYNC_COPY the host memory must stay valid until the stream has
  // passed the copy.
  [[nodiscard]] std::optional<Error> copy_to_host(int index, void* host, hcd_ref from, size_t bytes,
                                                  hcd_stream stream) const;
  [[nodiscard]] std::optional<Error> copy_from_host(int index, hcd_ref to, const void* host,
                                                    size_t bytes, hcd_stream stream) const;

  // Maps a range for the host for the guard's lifetime. Wait for the device's work first. Without
  // HCD_CAP_COHERENT_MAP, the device must not use the range meanwhile.
  Result<MappedRange> map(int index, hcd_ref ref, size_t bytes) const;

  // Queues fn(arg) in stream order; later work waits for its return. `fn` may block and must not
  // call the device. `arg` must stay valid until then.
  [[nodiscard]] std::optional<Error> host_function(int index, hcd_stream stream, void (*fn)(void*),
                                                   void* arg) const;

  // Queues a wait until *word >= value, or a store to *word. The word must outlive the queued work.
  [[nodiscard]] std::optional<Error> wait_for_word(int index, hcd_stream stream,
                                                   const volatile uint64_t* word,
                                                   uint64_t value) const;
  [[nodiscard]] std::optional<Error> write_word(int index, hcd_stream stream,
                                                volatile uint64_t* word, uint64_t value) const;

  Result<ExportedRange> export_range(int index, hcd_ref ref, size_t bytes) const;
  // False once the allocation exported as `handle` is freed; true if the plugin cannot tell. Cheap.
  bool still_exported(int index, const hcd_ipc_handle& handle) const;
  // Maps another process's export for the host for the guard's lifetime.
  Result<ImportedRange> import_range(int index, const hcd_ipc_handle& handle) const;
  // The same for device work: data() is a base for a hcd_ref and for torch's operators, not a host
  // address. Wait for all work on it before the guard ends.
  Result<ImportedRange> open_peer(int index, const hcd_ipc_handle& handle) const;

  // A private stream. `like`: any stream of the device, or 0. Queued work completes even if the
  // stream is destroyed first.
  Result<DeviceStream> make_stream(int index, hcd_stream like, int priority = 0) const;
  // Records the current end of the stream. The event may be destroyed before the stream reaches it.
  Result<DeviceEvent> record(int index, hcd_stream stream) const;
  [[nodiscard]] std::optional<Error> wait_for_event(int index, hcd_stream stream,
                                                    const DeviceEvent& event) const;
  // passed() polls; synchronize() blocks until the stream has passed the event.
  Result<bool> passed(int index, const DeviceEvent& event) const;
  [[nodiscard]] std::optional<Error> synchronize(int index, const DeviceEvent& event) const;

  // In stream order, within the device. Ranges must not overlap.
  [[nodiscard]] std::optional<Error> copy_within(int index, hcd_ref to, hcd_ref from, size_t bytes,
                                                 hcd_stream stream) const;
  // inout = inout op in, in stream order. kUnsupported if the device lacks this type and op.
  [[nodiscard]] std::optional<Error> reduce(int index, hcd_ref inout, hcd_ref in, size_t elements,
                                            DataType type, ReduceOp op, hcd_stream stream) const;
  // out = the scaled reduction of at least two sources, as Reduction::combine_all() on the host.
  [[nodiscard]] std::optional<Error> reduce_many(int index, hcd_ref out,
                                                 std::span<const hcd_ref> sources, size_t elements,
                                                 DataType type, ReduceOp op, Scaling scaling,
                                                 hcd_stream stream) const;

  // A whole all-reduction by the ranks of a host as one kernel of each; see plugin.h.
  struct SmallGroup {
    int rank = 0;
    size_t payload = 0;
    std::span<const hcd_ref> areas;  // by rank
    volatile uint64_t* state = nullptr;
    const volatile uint64_t* stop = nullptr;
    volatile uint64_t* completed = nullptr;
    uint64_t fingerprint = 0;
  };
  [[nodiscard]] std::optional<Error> all_reduce_small(int index, const SmallGroup& group,
                                                      hcd_ref out, hcd_ref in, size_t elements,
                                                      DataType type, ReduceOp op, Scaling scaling,
                                                      hcd_stream stream) const;

  // Device memory: data() is a base. Release only after all queued work on it.
  Result<MappedRange> allocate(int index, size_t bytes) const;
  // Host memory for fast device copies, while the guard lives: new, or existing whole pages.
  Result<MappedRange> allocate_host(int index, size_t bytes) const;
  Result<MappedRange> register_host(int index, void* host, size_t bytes) const;

  // The file keeps the memory alive even if it is freed.
  Result<ExportedFile> export_file(int index, hcd_ref ref, size_t bytes) const;
  // Makes other devices' writes to this device's memory visible to work that begins later.
  [[nodiscard]] std::optional<Error> flush(int index) const;
  // The allocation that holds the range. Cheap; thread-safe.
  Result<DeviceAllocation> identify(int index, hcd_ref ref, size_t bytes) const;

 private:
  template <class Handle>
  friend class Owned;

  std::optional<Error> check(int status, int index, Attempt attempt) const;
  Error unsupported(int index, Attempt attempt) const;

  hcd_api api_;  // complete: null where the plugin has no entry
  std::string name_;
  const hcd_dmabuf* dmabuf_;                       // null: none
  std::unique_ptr<WordFunctions> word_functions_;  // null: not needed, or unsupported
};

}  // namespace hccl_like

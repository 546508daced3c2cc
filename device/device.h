#pragma once
// A kind of device as the layers above see it: a plugin's table with a lifetime, sentences for
// errors, and guards.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/fd.h"
#include "core/base/result.h"
#include "core/base/types.h"
#include "device/owned.h"
#include "device/plugin.h"
#include "device/word_functions.h"

namespace hccl_like {

struct DeviceInfo {
  uint64_t caps = 0;   // HCD_CAP_...
  int numa_node = -1;  // -1: not known
  std::string uuid;    // empty: not known
  std::string pci;     // empty: not on PCI

  bool has(uint64_t cap) const noexcept { return (caps & cap) != 0; }
};

// Memory that another process of this host may import: where the range lies in what it will see.
struct ExportedRange {
  hcd_ipc_handle handle{};
  uint64_t offset = 0;
  // What its owner calls the allocation (transport/same_host/exports.h); 0: it has told no name.
  uint64_t name = 0;
};

// Memory that other devices may use: the file that stands for it, and where the range lies in it.
struct ExportedFile {
  Fd file;
  uint64_t offset = 0;
};

// A piece of device memory that is allocated and freed as a whole.
struct DeviceAllocation {
  std::array<uint64_t, 2> identity{};  // no other of this process has, had or will have it
  hcd_ref begin{};
  size_t bytes = 0;
  uint64_t offset = 0;      // in it, of what was asked about
  void* address = nullptr;  // where nothing of the host's ever lies; null: nowhere
  uint32_t hmem = 0;        // as libfabric counts kinds of memory
};

// One plugin, initialised, with all devices that it serves: every call names one by its index, as
// torch counts them. Any thread may call anything. What may block is said in plugin.h: waiting,
// making and giving back, and copies without HCD_CAP_ASYNC_COPY.
//
// What the device cannot do gives kUnsupported without calling the plugin; ask can_...() where that
// decides a path. A failure of the plugin gives kDevice with the name of the entry and the plugin's
// own sentence. Must outlive all that it made and all queued work.
class Device {
 public:
  // Loads the shared library and initialises it. Throws kDevice with what to do if that fails. The
  // library stays in memory for good: a plugin's threads may run its code until the process ends.
  static std::unique_ptr<Device> load(const std::string& library_path);

  // Initialises the plugin behind a table, which must live as long as this object. Throws kDevice.
  // `origin` says in messages where it came from.
  explicit Device(const hcd_api& api, std::string origin = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The type's name in torch, "sim".
  const std::string& name() const noexcept { return name_; }
  Result<DeviceInfo> info(int index) const;

  bool can_describe_itself() const noexcept { return api_.device_info != nullptr; }
  bool can_translate_streams() const noexcept { return api_.stream_from_torch != nullptr; }
  bool can_map() const noexcept { return api_.map != nullptr; }
  // By host_func or, without it, by words.
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
  bool can_allocate() const noexcept { return api_.mem_alloc != nullptr; }
  bool can_allocate_host() const noexcept { return api_.host_alloc != nullptr; }
  bool can_register_host() const noexcept { return api_.host_register != nullptr; }
  bool can_export_files() const noexcept { return dmabuf_ != nullptr; }
  bool can_identify() const noexcept;

  // The plugin's stream for a torch stream: its id, and its native handle or null.
  Result<hcd_stream> stream_from_torch(int index, int64_t stream_id, void* native) const;
  // Blocks until everything queued on the stream so far is done and visible to the host.
  [[nodiscard]] std::optional<Error> synchronize(int index, hcd_stream stream) const;

  // In stream order. With HCD_CAP_ASYNC_COPY the host memory is borrowed until the stream has
  // passed.
  [[nodiscard]] std::optional<Error> copy_to_host(int index, void* host, hcd_ref from, size_t bytes,
                                                  hcd_stream stream) const;
  [[nodiscard]] std::optional<Error> copy_from_host(int index, hcd_ref to, const void* host,
                                                    size_t bytes, hcd_stream stream) const;

  // The host's view of a range, until the guard ends. Order yourself after the device's work first;
  // unless the device has HCD_CAP_COHERENT_MAP, it must leave the range alone meanwhile.
  Result<MappedRange> map(int index, hcd_ref ref, size_t bytes) const;

  // Queues fn(arg) after all earlier work of the stream; later work waits for it. `fn` may block,
  // and must not call the device. `arg` is borrowed until then.
  [[nodiscard]] std::optional<Error> host_function(int index, hcd_stream stream, void (*fn)(void*),
                                                   void* arg) const;

  // Queues a wait until *word >= value, and a store to it. The word must outlive the queued work.
  [[nodiscard]] std::optional<Error> wait_for_word(int index, hcd_stream stream,
                                                   const volatile uint64_t* word,
                                                   uint64_t value) const;
  [[nodiscard]] std::optional<Error> write_word(int index, hcd_stream stream,
                                                volatile uint64_t* word, uint64_t value) const;

  Result<ExportedRange> export_range(int index, hcd_ref ref, size_t bytes) const;
  // Whether the allocation that this process exported as `handle` still exists; true where the
  // plugin cannot tell. Cheap; any thread.
  bool still_exported(int index, const hcd_ipc_handle& handle) const;
  // What another process exported, mapped here until the guard ends.
  Result<ImportedRange> import_range(int index, const hcd_ipc_handle& handle) const;
  // The same for the device: data() is a base for a hcd_ref and for torch's operators, and no
  // address for the host. Wait for all work that uses it before the guard ends.
  Result<ImportedRange> open_peer(int index, const hcd_ipc_handle& handle) const;

  // A stream for the caller alone. `like`: any stream of the device, or 0. What is queued is done
  // also if it ends.
  Result<DeviceStream> make_stream(int index, hcd_stream like, int priority = 0) const;
  // The point that the stream has come to; the event may end before anybody has passed it.
  Result<DeviceEvent> record(int index, hcd_stream stream) const;
  [[nodiscard]] std::optional<Error> wait_for_event(int index, hcd_stream stream,
                                                    const DeviceEvent& event) const;
  // Whether it was passed, and, the second, blocking until it was.
  Result<bool> passed(int index, const DeviceEvent& event) const;
  [[nodiscard]] std::optional<Error> synchronize(int index, const DeviceEvent& event) const;

  // In stream order, within the device. The ranges are apart.
  [[nodiscard]] std::optional<Error> copy_within(int index, hcd_ref to, hcd_ref from, size_t bytes,
                                                 hcd_stream stream) const;
  // inout = inout op in, in stream order; kUnsupported also for a type and op that the device
  // cannot do.
  [[nodiscard]] std::optional<Error> reduce(int index, hcd_ref inout, hcd_ref in, size_t elements,
                                            DataType type, ReduceOp op, hcd_stream stream) const;

  // Memory of the device: data() is a base. Nothing queued may use what ends.
  Result<MappedRange> allocate(int index, size_t bytes) const;
  // Host memory that the device's copies reach best: new, or some that exists, in whole pages,
  // until the guard ends.
  Result<MappedRange> allocate_host(int index, size_t bytes) const;
  Result<MappedRange> register_host(int index, void* host, size_t bytes) const;

  // The file keeps the memory, whoever frees it.
  Result<ExportedFile> export_file(int index, hcd_ref ref, size_t bytes) const;
  // The device's work that begins from here on sees what other devices have written to its memory.
  [[nodiscard]] std::optional<Error> flush(int index) const;
  // What the range lies in. Cheap; any thread.
  Result<DeviceAllocation> identify(int index, hcd_ref ref, size_t bytes) const;

 private:
  template <class Handle>
  friend class Owned;

  std::optional<Error> check(int status, int index, Attempt attempt) const;
  Error unsupported(int index, Attempt attempt) const;

  hcd_api api_;  // complete: null where the plugin has no entry
  std::string name_;
  const hcd_dmabuf* dmabuf_;                       // null: none
  std::unique_ptr<WordFunctions> word_functions_;  // null: not needed, or no words
};

}  // namespace hccl_like

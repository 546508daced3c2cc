#pragma once
// A cache of memory registrations with network cards.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace hccl_like {

class Registrar {
 public:
  // Null if it cannot be registered.
  virtual void* add(const std::byte* data, size_t bytes) = 0;
  virtual void remove(void* registration) = 0;

 protected:
  virtual ~Registrar() = default;
};

// Memory with a known owner: its whole range, and an identity that no other range ever has.
struct LastingRange {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::array<uint64_t, 2> identity{};
};

// Registering memory pins pages and takes as long as sending some tens of KiB. A cache must notice
// when memory is freed, since new memory may get the same address. For malloc's memory only hooks
// in the process's allocator can do that. libfabric's own cache has such hooks for providers that
// pin (FI_MR_CACHE_MONITOR), so this cache adds none:
// - Memory of this library's allocators is registered once as a whole. A lookup compares address
//   and identity, so no notification is needed. Stale entries, and the least recently used ones
//   beyond the limits, are ended.
// - Device memory exported to network adapters (device/exported_memory.h) likewise. A registration
//   keeps that memory alive, so every new registration, and every few lookups, search for freed
//   memory.
// - All other memory is registered for one message.
//
// Used by one thread at a time. Registrations in use are never ended.
class RegistrationCache {
 public:
  struct Limits {
    size_t entries = 0;
    size_t bytes = 0;
  };
  struct Stats {
    size_t entries = 0;
    size_t bytes = 0;
  };
  using Find = std::function<std::optional<LastingRange>(const std::byte* data, size_t bytes)>;
  // A registration that covers the requested memory. Lasts while a Use is held.
  struct Registration {
    const std::byte* begin = nullptr;
    void* handle = nullptr;  // the registrar's
  };
  using Use = std::shared_ptr<const Registration>;

  // `find`: the memory's owner, if known. The registrar must outlive this object and all uses.
  RegistrationCache(Registrar& registrar, Find find, Limits limits)
      : registrar_(registrar), find_(std::move(find)), limits_(limits) {}

  // Null if it cannot be registered.
  Use use(const std::byte* data, size_t bytes);
  // Ends registrations that are not in use.
  void clear();
  Stats stats() const { return {entries_.size(), bytes_}; }

 private:
  struct Entry {
    size_t bytes = 0;
    std::array<uint64_t, 2> identity{};
    Use registration;
    uint64_t used = 0;
  };
  using Entries = std::map<const std::byte*, Entry>;

  Use add(const std::byte* data, size_t bytes);
  Entries::iterator erase(Entries::iterator at);
  void drop_overlapping(const LastingRange& range);
  void drop_gone();
  bool make_room(size_t bytes);

  Registrar& registrar_;
  const Find find_;
  const Limits limits_;
  Entries entries_;  // by begin; none overlap
  size_t bytes_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace hccl_like

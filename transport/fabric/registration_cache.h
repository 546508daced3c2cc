#pragma once
// Registrations of memory with a card, kept for the next message from the same memory.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace hccl_like {

// Makes and ends them.
class Registrar {
 public:
  // Null if it cannot be registered.
  virtual void* add(const std::byte* data, size_t bytes) = 0;
  virtual void remove(void* registration) = 0;

 protected:
  virtual ~Registrar() = default;
};

// Memory whose owner is known: all of what it has there in one piece, and a number that nothing
// else ever has.
struct LastingRange {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::array<uint64_t, 2> identity{};
};

// Registering pins pages and tells the card of them, which takes as long as sending some tens of
// KiB. But a cache is right only if it hears of memory that is gone, since other memory may come to
// lie at the same address. Of malloc's memory only hooks in the whole process's allocator would
// tell, as libfabric's own cache has them for providers that pin (FI_MR_CACHE_MONITOR); a second
// set of hooks is no gain. So here
//
// * memory of our own allocators is registered once, all of a piece, and found again by address
// *and* identity: what lies at
//   the address by now is compared with what was registered there, so nothing needs to be told.
//   What is stale, or least recently used beyond the limits, is ended;
// * so is memory of a device that was exported to network adapters (device/exported_memory.h): its
// registration keeps the memory,
//   so what is gone is looked for whenever something new is registered, and now and then besides;
// * all other memory is registered for one message.
//
// Used by one thread at a time. What is in use is never ended.
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
  // What covers the memory that was asked for, and where it begins. It is not ended as long as this
  // is held.
  struct Registration {
    const std::byte* begin = nullptr;
    void* handle = nullptr;  // the registrar's
  };
  using Use = std::shared_ptr<const Registration>;

  // The registrar must outlive this object and all uses. `find`: whose memory it is; nothing if
  // nobody's.
  RegistrationCache(Registrar& registrar, Find find, Limits limits)
      : registrar_(registrar), find_(std::move(find)), limits_(limits) {}

  // Null if it cannot be registered.
  Use use(const std::byte* data, size_t bytes);
  // Ends what is not in use.
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
  Entries entries_;  // by where they begin; none overlap
  size_t bytes_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace hccl_like

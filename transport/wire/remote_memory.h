#pragma once
// Optional part of a wire: one-sided reads of the peer's memory, and notes that overtake its bytes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "transport/wire/wire.h"

namespace hccl_like {

// Address of exposed memory. Only the transport interprets the words.
struct RemotePlace {
  std::array<uint64_t, 16> words{};
};

// Both directions to one peer. Used by one thread at a time, like its wire. No method blocks.
// remote_rendezvous.h is the user.
class RemoteMemory {
 public:
  // In each direction.
  static constexpr size_t kSlots = 8;
  static constexpr size_t kReads = 16;

  enum class Told : uint32_t { kTaken = 1, kDropped, kStop, kStopped };
  // Defined by remote_rendezvous.h. Reliable and ordered. At most 4 * kSlots notes are in flight.
  struct Note {
    Told told{};
    uint32_t message = 0;
  };
  enum class State { kUnderWay, kDone, kFailed };

  virtual ~RemoteMemory() = default;
  RemoteMemory() = default;
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;

  // Lets the peer read the memory until hide(). Nothing on failure. One range per slot at a time.
  virtual std::optional<RemotePlace> show(size_t slot, const std::byte* data, size_t bytes) = 0;
  // Ends the exposure: later reads by the peer fail. The peer should have no read in flight,
  // because with some providers a failing read ends the connection.
  virtual void hide(size_t slot) = 0;

  // Starts a read of peer memory at byte `offset` of `place`. `into` is borrowed until release().
  // Returns nothing if no read can start now. `place` comes from the peer. The side that serves the
  // read validates it.
  virtual std::optional<uint32_t> read(const RemotePlace& place, size_t offset,
                                       std::span<std::byte> into) = 0;
  virtual State state(uint32_t read) const = 0;
  // Requires that the read is not in flight.
  virtual void release(uint32_t read) = 0;

  // Whether both ends can expose and read device memory that host code cannot access
  // (device/exported_memory.h).
  virtual bool reaches_devices() const { return false; }
  // Registers such memory so that later show() and read() calls cannot fail; false if that is not
  // possible. May be slow: called before any message that needs the memory.
  virtual bool prepare(const std::byte*, size_t) { return false; }

  virtual void tell(Note note) = 0;
  // A note that the peer sent before it released memory is received no later than the completion of
  // the affected reads.
  virtual std::optional<Note> hear() = 0;
  // As Wire's, for notes. The wire's own flush() calls it.
  virtual bool flush() { return true; }
  virtual bool has_notes() = 0;

  virtual void progress() = 0;
  // Guarantees that unanswered reads no longer write to memory. The wire fails.
  virtual void abandon(const char* why) = 0;
  // The reason for that; empty before. For a wire that does not learn it otherwise.
  virtual std::string_view why_abandoned() const { return {}; }

  // As WireExtensions::rails_changed, for the cards that carry reads and notes. May be null.
  virtual RailsChanged* rails_changed() { return nullptr; }
};

}  // namespace hccl_like

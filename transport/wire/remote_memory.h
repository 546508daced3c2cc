#pragma once
// What a wire may offer beside its bytes: memory of the peer that this end reads by itself, without
// the peer's help (remote memory access), and short notes to the peer that overtake what is on the
// wire.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace hccl_like {

// How a peer finds memory that was shown to it. Only the transport knows what the words mean.
struct RemotePlace {
  std::array<uint64_t, 16> words{};
};

// One peer, both directions. Used by one thread at a time, as the wire it belongs to; nothing
// blocks. remote_rendezvous.h uses it.
class RemoteMemory {
 public:
  // Messages under way each way.
  static constexpr size_t kSlots = 8;
  // Reads under way.
  static constexpr size_t kReads = 16;

  enum class Told : uint32_t { kTaken = 1, kDropped, kStop, kStopped };
  // What it means is remote_rendezvous.h's; they arrive in order, and none is lost. At most 4 *
  // kSlots are ever under way.
  struct Note {
    Told told{};
    uint32_t message = 0;
  };
  enum class State { kUnderWay, kDone, kFailed };

  virtual ~RemoteMemory() = default;
  RemoteMemory() = default;
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;

  // Lets the peer read the memory until hide(). Nothing if that cannot be. One range a slot at a
  // time.
  virtual std::optional<RemotePlace> show(size_t slot, const std::byte* data, size_t bytes) = 0;
  // The peer's reads fail from here on. It should have none under way: with some providers that
  // ends the connection.
  virtual void hide(size_t slot) = 0;

  // Starts to read what lies `offset` bytes behind the beginning of a peer's place. The memory is
  // borrowed until release(). Nothing: not now. `place` is the peer's word, and checked by whoever
  // serves the read.
  virtual std::optional<uint32_t> read(const RemotePlace& place, size_t offset,
                                       std::span<std::byte> into) = 0;
  virtual State state(uint32_t read) const = 0;
  // Of a read that is not under way.
  virtual void release(uint32_t read) = 0;

  // Whether both ends show and read memory of devices that host code cannot reach
  // (device/exported_memory.h), too.
  virtual bool reaches_devices() const { return false; }
  // Makes such memory ready to be shown and read into, so that neither will fail; false if it
  // cannot be. Never before a message is under way that needs it, so it may take a while.
  virtual bool prepare(const std::byte*, size_t) { return false; }

  virtual void tell(Note note) = 0;
  // What the peer told before it let go of any memory is heard no later than the reads that it
  // concerns are done.
  virtual std::optional<Note> hear() = 0;
  virtual bool has_notes() = 0;

  // Drives reads and notes.
  virtual void progress() = 0;
  // Reads that the peer never answers are to touch no memory any more, whatever that takes: the
  // wire fails.
  virtual void abandon(const char* why) = 0;
};

}  // namespace hccl_like

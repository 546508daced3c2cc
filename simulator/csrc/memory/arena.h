#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/descriptor.h"
#include "memory/address_space.h"

namespace torch_sim {

// Random bytes that a peer process must present to map an arena. Only the owner of the arena can
// tell the peer these bytes.
using Nonce = std::array<uint64_t, 2>;

// The last page of an arena's file. It is not part of the device's memory.
struct ArenaTrailer {
  static constexpr uint64_t kMagic = 0x6d69732d6e657261;  // "arena-sim"
  uint64_t magic = kMagic;
  uint64_t bytes = 0;
  Nonce nonce{};
};

constexpr size_t kTrailerBytes = 4096;

// A piece of device memory: an unnamed file in memory, all of whose pages are reserved when it is
// made (a full host is an OutOfMemory here and never a SIGBUS later), mapped into both ranges of
// the address space. Its size is sealed, so nobody who maps it can be cut off. Nothing of it is
// left when the last process that maps it is gone.
class Arena {
 public:
  // `at` is in the device range and, like `bytes`, a multiple of the page size.
  Arena(const AddressSpace& space, std::byte* at, size_t bytes);
  // An arena that another process made, which has been checked to be one: `file` holds it and has
  // that nonce.
  Arena(const AddressSpace& space, std::byte* at, size_t bytes, Descriptor file,
        const Nonce& nonce);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* begin() const { return at_; }
  std::byte* end() const { return at_ + bytes_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  const Nonce& nonce() const { return nonce_; }
  // Another process made it.
  bool is_peers() const { return is_peers_; }
  // The process that has the file under the number fd(). A forked child has no use of the device.
  int64_t process() const { return process_; }

 private:
  void reserve_pages();
  void write_trailer();
  void map();

  std::byte* at_;
  std::byte* kernel_;
  size_t bytes_;
  Descriptor fd_;
  Nonce nonce_{};
  const int64_t process_;
  const bool is_peers_ = false;
};

}  // namespace torch_sim

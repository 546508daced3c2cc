#include "memory/arena_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace torch_sim {
namespace {

// All pages of an arena are reserved and mapped when it is made, which takes a millisecond for each
// MiB: the first is small.
constexpr size_t kFirstArena = size_t{8} << 20;
constexpr size_t kSmallestStep = size_t{64} << 20;
constexpr size_t kLargestStep = size_t{512} << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

ArenaPool::ArenaPool(const AddressSpace& space, int device, size_t limit)
    : space_(space), device_(device), limit_(std::min(limit, space.span()) / kSegment * kSegment) {}

std::byte* ArenaPool::take(size_t bytes) {
  for (auto& [at, entry] : arenas_)
    if (std::byte* found = take_from(entry, bytes)) return found;
  return take_from(grow(bytes), bytes);
}

std::byte* ArenaPool::take_from(Entry& entry, size_t bytes) {
  const auto hole = std::find_if(entry.free.begin(), entry.free.end(),
                                 [&](auto& h) { return h.second >= bytes; });
  if (hole == entry.free.end()) return nullptr;
  const auto [offset, size] = *hole;
  entry.free.erase(hole);
  if (size > bytes) entry.free.emplace(offset + bytes, size - bytes);
  return entry.arena->begin() + offset;
}

void ArenaPool::give_back(std::byte* at, size_t bytes) {
  Entry& entry = std::prev(arenas_.upper_bound(at))->second;
  auto hole = entry.free.emplace(at - entry.arena->begin(), bytes).first;
  if (const auto next = std::next(hole);
      next != entry.free.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    entry.free.erase(next);
  }
  if (hole == entry.free.begin()) return;
  if (const auto before = std::prev(hole); before->first + before->second == hole->first) {
    before->second += hole->second;
    entry.free.erase(hole);
  }
}

std::byte* ArenaPool::add_peer(size_t bytes, Descriptor file, const Nonce& nonce) {
  std::byte* at = place(bytes);
  arenas_.emplace(at,
                  Entry{.arena = std::make_unique<Arena>(space_, at, bytes, std::move(file), nonce),
                        .free = {}});
  return at;
}

bool ArenaPool::remove_peer(std::byte* at) {
  const auto found = arenas_.find(at);
  if (found == arenas_.end() || !found->second.arena->is_peers()) return false;
  arenas_.erase(found);
  return true;
}

void ArenaPool::trim() {
  std::erase_if(arenas_, [&](auto& item) {
    const Entry& entry = item.second;
    const bool unused =
        entry.free.size() == 1 && entry.free.begin()->second == entry.arena->bytes();
    if (unused) reserved_ -= entry.arena->bytes();
    return unused;
  });
}

bool ArenaPool::has(const Nonce& nonce) const {
  return std::any_of(arenas_.begin(), arenas_.end(), [&](const auto& item) {
    return !item.second.arena->is_peers() && item.second.arena->nonce() == nonce;
  });
}

const Arena* ArenaPool::find(const void* at, size_t bytes) const {
  auto* begin = const_cast<std::byte*>(static_cast<const std::byte*>(at));
  const auto after = arenas_.upper_bound(begin);
  if (after == arenas_.begin()) return nullptr;
  const Arena* arena = std::prev(after)->second.arena.get();
  return begin + bytes <= arena->end() ? arena : nullptr;
}

// Doubles up to 128 MiB, then grows by a quarter of what the device holds, so that the number of
// arenas (a file descriptor each) stays small, but by no more than is asked for when that would not
// fit.
ArenaPool::Entry& ArenaPool::grow(size_t bytes) {
  const size_t left = limit_ - reserved_;
  if (bytes > left)
    throw OutOfMemory("sim: device " + std::to_string(device_) + " has " +
                      std::to_string(left >> 20) + " of " + std::to_string(limit_ >> 20) +
                      " MiB left, " + std::to_string(bytes >> 20) +
                      " MiB are asked for (TORCH_SIM_MEMORY sets the size of a device)");
  const size_t smallest = std::clamp(reserved_, kFirstArena, kSmallestStep);
  const size_t step = std::clamp(round_up(reserved_ / 4, kSegment), smallest, kLargestStep);
  const auto make = [&](size_t size) -> Entry& {
    std::byte* at = place(size);
    Entry& entry =
        arenas_.emplace(at, Entry{std::make_unique<Arena>(space_, at, size), {}}).first->second;
    entry.free.emplace(0, size);
    reserved_ += size;
    return entry;
  };
  const size_t wanted = std::min(std::max(bytes, step), left);
  if (wanted == bytes) return make(bytes);
  try {
    return make(wanted);
  } catch (const OutOfMemory&) {
    return make(bytes);
  }
}

// The first gap of the device's addresses that is large enough.
std::byte* ArenaPool::place(size_t bytes) const {
  std::byte* at = space_.device_range(device_);
  const std::byte* end = at + space_.span();
  for (const auto& [begin, entry] : arenas_) {
    if (static_cast<size_t>(begin - at) >= bytes) return at;
    at = entry.arena->end();
  }
  if (static_cast<size_t>(end - at) >= bytes) return at;
  throw OutOfMemory("sim: the addresses of device " + std::to_string(device_) + " are used up");
}

}  // namespace torch_sim

#include "device/host/shared_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/memory/memory_file.h"
#include "core/memory/placement.h"
#include "device/host/peer_file.h"

namespace hccl_like {
namespace {

constexpr uint64_t kMagic = 0x79726f6d656d7973;

// Behind the data, in a page that is never mapped.
struct Stamp {
  uint64_t magic = kMagic;
  uint64_t bytes = 0;
  std::array<uint64_t, 2> nonce{};
};

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }
size_t whole_pages(size_t bytes) {
  const size_t page = page_bytes();
  return std::max((bytes + page - 1) / page, size_t{1}) * page;
}

// All memory created by this process, by address.
struct Created {
  std::atomic<uintptr_t> begin{std::numeric_limits<uintptr_t>::max()};  // lowest address
  std::atomic<uintptr_t> end{0};                                        // highest address
  std::mutex mutex;
  std::map<uintptr_t, SharedMemoryToken> tokens;
};

// Never freed: memory may be released during process exit. A forked child starts empty: inherited
// memory belongs to the parent, and a lost thread may hold the lock.
std::atomic<Created*>& created() {
  static std::atomic<Created*> instance = [] {
    ::pthread_atfork(nullptr, nullptr, [] { created().store(new Created); });
    return new Created;
  }();
  return instance;
}

// Aligns a large mapping for huge pages.
Mapping map_file(int fd, size_t bytes, int flags) {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  if (bytes < kHugePage) return Mapping::map(fd, bytes, kAccess, MAP_SHARED | flags);
  constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const around = ::mmap(nullptr, bytes + kHugePage, PROT_NONE, kNothing, -1, 0);
  if (around == MAP_FAILED) throw_system("no addresses are left for shared memory");
  auto* const begin = static_cast<std::byte*>(around);
  const size_t front = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  if (front > 0) ::munmap(begin, front);
  if (front < kHugePage) ::munmap(begin + front + bytes, kHugePage - front);
  Mapping place(begin + front, bytes);
  if (::mmap(place.data(), bytes, kAccess, MAP_SHARED | MAP_FIXED | flags, fd, 0) == MAP_FAILED)
    throw_system("cannot map " + std::to_string(bytes) + " bytes of shared memory");
  return place;
}

// Allocates all pages now. Kernels before 5.14 do not map them: the first touch then costs a fault.
void make_pages(int fd, const Mapping& mapping) {
  const size_t bytes = mapping.size();
  place_near_me(mapping.span());
  use_huge_pages(mapping.span());
  errno = 0;
  const bool made = populate(mapping.span());
  if (!made || (errno == EINVAL && !reserve(fd, 0, bytes)))
    throw_system("cannot reserve " + std::to_string(bytes) + " bytes of shared memory");
}

bool is_what_was_offered(int fd, const SharedMemoryToken& token) {
  struct stat status {};
  Stamp stamp{.magic = 0};
  return has_sealed_size(fd) && ::fstat(fd, &status) == 0 &&
         static_cast<uint64_t>(status.st_size) == token.bytes + page_bytes() &&
         ::pread(fd, &stamp, sizeof stamp, static_cast<off_t>(token.bytes)) == sizeof stamp &&
         stamp.magic == kMagic && stamp.bytes == token.bytes && stamp.nonce == token.nonce;
}

void add(const std::byte* data, const SharedMemoryToken& token) {
  Created& all = *created();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::lock_guard lock(all.mutex);
  all.tokens[begin] = token;
  all.begin = std::min(all.begin.load(), begin);
  all.end = std::max(all.end.load(), begin + token.bytes);
}

void remove(const std::byte* data, const SharedMemoryToken& token) {
  Created& all = *created();
  std::lock_guard lock(all.mutex);
  const auto found = all.tokens.find(reinterpret_cast<uintptr_t>(data));
  // A forked child's own memory may reuse the descriptor number of inherited memory.
  if (found == all.tokens.end() || found->second.nonce != token.nonce) return;
  all.tokens.erase(found);
}

// A sealed file of `bytes`, whole pages, with its stamp behind them.
std::pair<Fd, SharedMemoryToken> make_file(size_t bytes) {
  Fd file = make_shared_memory("hccl-like-shared");
  SharedMemoryToken token{.process = ::getpid(), .descriptor = file.get(), .bytes = bytes};
  const ssize_t drawn = ::getrandom(&token.nonce, sizeof token.nonce, 0);
  const Stamp stamp{.bytes = token.bytes, .nonce = token.nonce};
  const auto behind = static_cast<off_t>(token.bytes);
  if (drawn != sizeof token.nonce ||
      ::ftruncate(file.get(), behind + static_cast<off_t>(page_bytes())) != 0 ||
      ::pwrite(file.get(), &stamp, sizeof stamp, behind) != sizeof stamp)
    throw_system("cannot write the end of shared memory");
  seal_size(file.get());
  return {std::move(file), token};
}

}  // namespace

SharedMemory SharedMemory::create(size_t bytes) {
  auto [file, token] = make_file(whole_pages(bytes));
  Mapping mapping = map_file(file.get(), token.bytes, 0);
  make_pages(file.get(), mapping);
  SharedMemory memory(std::move(file), token, std::move(mapping));
  add(memory.data(), token);
  return memory;
}

void SharedMemory::make_private() {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  Mapping copy = Mapping::map(-1, size(), kAccess, MAP_PRIVATE | MAP_ANONYMOUS);
  use_huge_pages(copy.span());
  std::memcpy(copy.data(), data(), size());
  copy.move_onto(mapping_);
  remove(data(), token_);
  file_.reset();
}

void SharedMemory::share() {
  auto [file, token] = make_file(size());
  Mapping copy = map_file(file.get(), size(), 0);
  make_pages(file.get(), copy);
  std::memcpy(copy.data(), data(), size());
  copy.move_onto(mapping_);
  file_ = std::move(file);
  token_ = token;
  add(data(), token_);
}

SharedMemory SharedMemory::open(const SharedMemoryToken& token) {
  const Fd file = open_peer_file(token.process, token.descriptor);
  if (!is_what_was_offered(file.get(), token))
    throw_error(ErrorCode::kPeerLost, "what process " + std::to_string(token.process) +
                                          " offered is not the shared memory it speaks of");
  // The pages exist: MAP_POPULATE maps them ten times faster than single faults. Only the mapping
  // is kept.
  return {Fd(), token, map_file(file.get(), token.bytes, MAP_POPULATE)};
}

SharedMemory::SharedMemory(Fd file, const SharedMemoryToken& token, Mapping mapping)
    : file_(std::move(file)), token_(token), mapping_(std::move(mapping)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  if (file_.valid()) remove(data(), token_);
  file_ = std::move(other.file_);
  token_ = other.token_;
  mapping_ = std::move(other.mapping_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (file_.valid()) remove(data(), token_);
}

void SharedMemory::discard() noexcept {
  constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  (void)::fallocate(file_.get(), kHole, 0, static_cast<off_t>(size()));
}

std::optional<SharedMemory::Place> SharedMemory::find(const void* at, size_t bytes) {
  Created& all = *created();
  const auto begin = reinterpret_cast<uintptr_t>(at);
  if (begin < all.begin.load(std::memory_order_relaxed) ||
      begin >= all.end.load(std::memory_order_relaxed))
    return std::nullopt;
  std::lock_guard lock(all.mutex);
  auto found = all.tokens.upper_bound(begin);
  if (found == all.tokens.begin()) return std::nullopt;
  --found;
  const uint64_t offset = begin - found->first;
  const SharedMemoryToken& token = found->second;
  if (offset > token.bytes || bytes > token.bytes - offset) return std::nullopt;
  return Place{token, offset};
}

bool SharedMemory::exists(const SharedMemoryToken& token) {
  Created& all = *created();
  std::lock_guard lock(all.mutex);
  return std::ranges::any_of(all.tokens,
                             [&](const auto& one) { return one.second.nonce == token.nonce; });
}

}  // namespace hccl_like

#include "core/counters/counter_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/memory/memory_file.h"

namespace hccl_like {
namespace {

using counter_layout::File;
using counter_layout::Group;

constexpr auto kRelaxed = std::memory_order_relaxed;

template <size_t kBytes>
void copy_text(std::array<char, kBytes>& to, std::string_view text) {
  to.fill('\0');
  std::ranges::copy(text.substr(0, kBytes - 1), to.begin());
}

uint64_t monotonic_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

uint64_t realtime_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

// Other threads count meanwhile.
template <class Slot>
void copy_words(const Slot& from, Slot& to) {
  static_assert(sizeof(Slot) % sizeof(uint64_t) == 0);
  const auto* source = reinterpret_cast<const uint64_t*>(&from);
  auto* target = reinterpret_cast<uint64_t*>(&to);
  for (size_t word = 0; word < sizeof(Slot) / sizeof(uint64_t); ++word)
    target[word] = __atomic_load_n(source + word, __ATOMIC_RELAXED);
}

template <class Slot>
void append(std::string& text, const Slot& slot) {
  Slot copy{};
  copy_words(slot, copy);
  text.append(reinterpret_cast<const char*>(&copy), sizeof copy);
}

// Only one thread at a time changes the counter.
void add(counter_layout::Counter& counter, uint64_t amount) {
  counter.store(counter.load(kRelaxed) + amount, kRelaxed);
}

// The size is sealed, so that a reader is never killed by a shrinking file.
Fd shared_file() {
  Fd fd = make_shared_memory(CounterFile::kName);
  if (::ftruncate(fd.get(), sizeof(File)) != 0) throw_system("cannot size the counter file");
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) throw_system("cannot protect the counter file");
  if (!reserve(fd.get(), 0, sizeof(File))) throw_system("no memory for the counter file");
  return fd;
}

}  // namespace

std::shared_ptr<CounterFile> CounterFile::make(std::span<const std::string_view> kinds) {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  try {
    Fd fd = shared_file();
    Mapping mapping = Mapping::map(fd.get(), sizeof(File), kAccess, MAP_SHARED);
    seal_size_and_writers(fd.get());
    return std::shared_ptr<CounterFile>(new CounterFile(std::move(fd), std::move(mapping), kinds));
  } catch (const Exception& error) {
    log_info(
        [&] { return std::string("hccl-like top will not see this process: ") + error.what(); });
  }
  Mapping mapping = Mapping::map(-1, sizeof(File), kAccess, MAP_PRIVATE | MAP_ANONYMOUS);
  return std::shared_ptr<CounterFile>(new CounterFile(Fd(), std::move(mapping), kinds));
}

CounterFile::CounterFile(Fd fd, Mapping mapping, std::span<const std::string_view> kinds)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), file_(new(mapping_.data()) File{}) {
  auto& header = file_->header;
  header.header_bytes = sizeof(counter_layout::Header);
  header.group_bytes = sizeof(Group);
  header.groups = counter_layout::kGroups;
  header.kinds = static_cast<uint32_t>(std::min(kinds.size(), counter_layout::kKinds));
  header.peers = counter_layout::kPeers;
  header.peer_bytes = sizeof(counter_layout::Peer);
  header.name_bytes = counter_layout::kNameBytes;
  header.pid = static_cast<uint32_t>(::getpid());
  header.rank = header.size = -1;
  header.started_ns = realtime_ns();
  for (size_t kind = 0; kind < header.kinds; ++kind) copy_text(header.names[kind], kinds[kind]);
  header.version = counter_layout::kVersion;
  std::atomic_thread_fence(std::memory_order_release);
  header.magic = counter_layout::kMagic;
}

std::shared_ptr<GroupCounters> CounterFile::add(const GroupInfo& group) {
  std::lock_guard lock(mutex_);
  const auto is_free = [](const Group& slot) { return slot.serial.load(kRelaxed) == 0; };
  const auto slot = std::ranges::find_if(file_->groups, is_free);
  if (slot == file_->groups.end()) {
    file_->header.uncounted.fetch_add(1, kRelaxed);
    return std::make_shared<GroupCounters>(shared_from_this(), nullptr);
  }
  new (&*slot) Group{};
  slot->id = group.id;
  slot->rank = group.rank;
  slot->size = group.size;
  slot->global_rank = group.global_rank;
  copy_text(slot->name, group.name);
  slot->serial.store(++serial_, std::memory_order_release);
  return std::make_shared<GroupCounters>(shared_from_this(), &*slot);
}

counter_layout::Peer* CounterFile::add_peer(int rank) {
  std::lock_guard lock(mutex_);
  if (peers_ == counter_layout::kPeers) {
    file_->header.uncounted.fetch_add(1, kRelaxed);
    return nullptr;
  }
  counter_layout::Peer& peer = file_->peers[peers_++];
  peer.number.store(static_cast<uint64_t>(rank) + 1, std::memory_order_release);
  return &peer;
}

void CounterFile::set_job(uint64_t id, int rank, int size) noexcept {
  auto& header = file_->header;
  header.job.store(id, kRelaxed);
  header.rank.store(rank, kRelaxed);
  header.size.store(size, kRelaxed);
}

std::string CounterFile::compact() const {
  const uint64_t now = monotonic_ns();
  std::string groups, peers;
  counter_layout::Header header{};
  copy_words(file_->header, header);
  header.groups = header.peers = 0;
  for (const Group& group : file_->groups) {
    if (group.serial.load(std::memory_order_acquire) == 0) continue;
    append(groups, group);
    ++header.groups;
  }
  for (const counter_layout::Peer& peer : file_->peers) {
    if (peer.number.load(kRelaxed) == 0) continue;
    append(peers, peer);
    ++header.peers;
  }
  std::string all(reinterpret_cast<const char*>(&now), sizeof now);
  all.append(reinterpret_cast<const char*>(&header), sizeof header);
  return all.append(groups).append(peers);
}

GroupCounters::~GroupCounters() {
  if (slot_ == nullptr) return;
  if (file_->file_->header.pid != static_cast<uint32_t>(::getpid())) return;
  std::lock_guard lock(file_->mutex_);
  slot_->serial.store(0, std::memory_order_release);
}

void GroupCounters::made_collective(uint64_t number, uint8_t kind) noexcept {
  if (slot_ == nullptr) return;
  slot_->collective.store(number, kRelaxed);
  slot_->peer.store(-1, kRelaxed);
  slot_->latest.store(number << 8 | (kind + 1U), kRelaxed);
}

void GroupCounters::made_message(uint64_t number, uint8_t kind, int peer) noexcept {
  if (slot_ == nullptr) return;
  slot_->peer.store(peer, kRelaxed);
  slot_->latest.store(number << 8 | (kind + 1U), kRelaxed);
}

void GroupCounters::over(std::span<const Call> calls, std::chrono::nanoseconds duration) noexcept {
  if (slot_ == nullptr) return;
  auto time = static_cast<uint64_t>(std::max<int64_t>(duration.count(), 0));
  for (const Call& call : calls) {
    counter_layout::Calls& counters = slot_->calls[call.kind % counter_layout::kKinds];
    add(counters.over, 1);
    add(counters.bytes, call.bytes);
    add(counters.nanoseconds, std::exchange(time, 0));  // once for a block
  }
}

void GroupCounters::launched() noexcept {
  if (slot_ == nullptr) return;
  const uint64_t before = slot_->launched.fetch_add(1, kRelaxed);
  if (before == slot_->finished.load(kRelaxed)) slot_->progress_ns.store(monotonic_ns(), kRelaxed);
}

void GroupCounters::finished(std::span<const Call> calls, std::chrono::nanoseconds duration,
                             bool failed) noexcept {
  if (slot_ == nullptr) return;
  slot_->progress_ns.store(monotonic_ns(), kRelaxed);
  slot_->finished.fetch_add(1, kRelaxed);
  if (!failed) return over(calls, duration);
  for (const Call& call : calls)
    slot_->calls[call.kind % counter_layout::kKinds].failed.fetch_add(1, kRelaxed);
}

void GroupCounters::refused() noexcept {
  if (slot_ != nullptr) slot_->refused.fetch_add(1, kRelaxed);
}

}  // namespace hccl_like

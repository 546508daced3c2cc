#include "transport/testing/local_store.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include "core/base/error.h"

namespace hccl_like {
namespace {

[[noreturn]] void throw_missing(const std::string& key) {
  throw_error(ErrorCode::kTimeout, "timed out waiting for the key '" + key + "' in the store");
}

// Processes may be killed while they wait, which a pthread condition variable does not survive; a
// bare futex does.
void wait_for_change(std::atomic<uint32_t>& word, uint32_t seen, int timeout_ms) {
  const timespec wait{timeout_ms / 1000, (timeout_ms % 1000) * 1'000'000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &wait, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void LocalStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string LocalStore::get(const std::string& key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return values_.contains(key); };
  if (deadline.is_never())
    changed_.wait(lock, there);
  else if (!changed_.wait_until(lock, deadline.time_point(), there))
    throw_missing(key);
  return values_[key];
}

int64_t LocalStore::add(const std::string& key, int64_t amount) {
  const std::lock_guard lock(mutex_);
  std::string& value = values_[key];
  const int64_t sum = (value.empty() ? 0 : std::stoll(value)) + amount;
  value = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

// Entries follow each other: key bytes, value bytes, key, value. The last one of a key counts.
struct ForkStore::Shared {
  pthread_mutex_t mutex;
  std::atomic<uint32_t> version;
  std::atomic<uint64_t> sets, gets, adds;
  size_t used;

  std::byte* entries() { return reinterpret_cast<std::byte*>(this + 1); }
};

class ForkStore::Lock {
 public:
  explicit Lock(Shared& shared) : mutex_(shared.mutex) {
    // An owner that died had changed nothing yet: append() makes an entry valid by its last store.
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

ForkStore::ForkStore(size_t bytes)
    : memory_(Mapping::map(-1, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS)),
      shared_(*new(memory_.data()) Shared{}) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared_.mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

ForkStore::~ForkStore() = default;

std::optional<std::string> ForkStore::find(const std::string& key) const {
  std::optional<std::string> found;
  for (size_t at = 0; at < shared_.used;) {
    uint32_t sizes[2];
    std::memcpy(sizes, shared_.entries() + at, sizeof sizes);
    at += sizeof sizes;
    const auto* text = reinterpret_cast<const char*>(shared_.entries() + at);
    if (std::string_view(text, sizes[0]) == key) found.emplace(text + sizes[0], sizes[1]);
    at += sizes[0] + sizes[1];
  }
  return found;
}

void ForkStore::append(const std::string& key, const std::string& value) {
  const uint32_t sizes[2] = {static_cast<uint32_t>(key.size()),
                             static_cast<uint32_t>(value.size())};
  const size_t bytes = sizeof sizes + key.size() + value.size();
  if (bytes > memory_.size() - sizeof(Shared) - shared_.used)
    throw_error(ErrorCode::kSystem, "the store of the forked ranks is full; make it larger");
  std::byte* at = shared_.entries() + shared_.used;
  std::memcpy(at, sizes, sizeof sizes);
  std::memcpy(at + sizeof sizes, key.data(), key.size());
  std::memcpy(at + sizeof sizes + key.size(), value.data(), value.size());
  shared_.used += bytes;
  ++shared_.version;
  wake_all(shared_.version);
}

void ForkStore::set(const std::string& key, const std::string& value) {
  const Lock lock(shared_);
  ++shared_.sets;
  append(key, value);
}

std::string ForkStore::get(const std::string& key, Deadline deadline) {
  ++shared_.gets;
  for (;;) {
    uint32_t seen;
    {
      const Lock lock(shared_);
      seen = shared_.version;
      if (auto value = find(key)) return *value;
    }
    if (deadline.expired()) throw_missing(key);
    const int left = deadline.remaining();
    wait_for_change(shared_.version, seen, left < 0 ? 100 : std::min(left, 100));
  }
}

int64_t ForkStore::add(const std::string& key, int64_t amount) {
  const Lock lock(shared_);
  ++shared_.adds;
  const auto value = find(key);
  const int64_t sum = (value ? std::stoll(*value) : 0) + amount;
  append(key, std::to_string(sum));
  return sum;
}

ForkStore::Calls ForkStore::calls() const { return {shared_.sets, shared_.gets, shared_.adds}; }

}  // namespace hccl_like

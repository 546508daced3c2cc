#include "transport/fabric/registration_cache.h"

#include <iterator>
#include <utility>

namespace hccl_like {
namespace {

constexpr uint64_t kUsesBetweenLooks = 64;

}  // namespace

RegistrationCache::Use RegistrationCache::add(const std::byte* data, size_t bytes) {
  void* const handle = registrar_.add(data, bytes);
  if (handle == nullptr) return nullptr;
  return {new Registration{data, handle}, [this](const Registration* ended) {
            registrar_.remove(ended->handle);
            delete ended;
          }};
}

RegistrationCache::Use RegistrationCache::use(const std::byte* data, size_t bytes) {
  const auto range = find_(data, bytes);
  if (!range) return add(data, bytes);
  const auto found = entries_.find(range->data);
  if (found != entries_.end() && found->second.identity == range->identity) {
    found->second.used = ++clock_;
    Use known = found->second.registration;
    if (clock_ % kUsesBetweenLooks == 0) drop_gone();
    return known;
  }
  drop_overlapping(*range);
  drop_gone();
  Use made = add(range->data, range->bytes);
  if (!made) return add(data, bytes);  // a part may fit although the whole does not
  if (!make_room(range->bytes)) return made;
  entries_[range->data] = {range->bytes, range->identity, made, ++clock_};
  bytes_ += range->bytes;
  return made;
}

void RegistrationCache::clear() {
  entries_.clear();
  bytes_ = 0;
}

RegistrationCache::Entries::iterator RegistrationCache::erase(Entries::iterator at) {
  bytes_ -= at->second.bytes;
  return entries_.erase(at);
}

// Overlapping entries belong to freed memory. Current users keep their registration.
void RegistrationCache::drop_overlapping(const LastingRange& range) {
  auto at = entries_.upper_bound(range.data);
  if (at != entries_.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second.bytes > range.data) at = before;
  }
  while (at != entries_.end() && at->first < range.data + range.bytes) at = erase(at);
}

// Current users keep their registration.
void RegistrationCache::drop_gone() {
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto there = find_(at->first, at->second.bytes);
    const bool lives = there && there->data == at->first && there->identity == at->second.identity;
    at = lives ? std::next(at) : erase(at);
  }
}

// False if registrations in use leave no room. Linear, but cheap compared with a registration.
bool RegistrationCache::make_room(size_t bytes) {
  if (limits_.entries == 0 || bytes > limits_.bytes) return false;
  while (entries_.size() >= limits_.entries || bytes_ + bytes > limits_.bytes) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      const bool held = at->second.registration.use_count() > 1;
      if (!held && (oldest == entries_.end() || at->second.used < oldest->second.used)) oldest = at;
    }
    if (oldest == entries_.end()) return false;
    erase(oldest);
  }
  return true;
}

}  // namespace hccl_like

#include "tests/model/weak_memory.h"

#include <algorithm>
#include <iterator>

namespace hccl_like::model {
namespace {

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_consume ||
         order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

}  // namespace

uint32_t View::at(Location location) const {
  const auto found =
      std::ranges::lower_bound(entries_, location, {}, [](const auto& e) { return e.first; });
  return found != entries_.end() && found->first == location ? found->second : 0;
}

void View::raise(Location location, uint32_t position) {
  if (position == 0) return;
  const auto found =
      std::ranges::lower_bound(entries_, location, {}, [](const auto& e) { return e.first; });
  if (found != entries_.end() && found->first == location)
    found->second = std::max(found->second, position);
  else
    entries_.insert(found, {location, position});
}

void View::join(const View& other) {
  for (const auto& [location, position] : other.entries_) raise(location, position);
}

void View::make_room(Location location, uint32_t position) {
  const uint32_t now = at(location);
  if (now >= position) raise(location, now + 1);
}

void View::add_to(Hash& hash, const std::vector<uint32_t>& floors) const {
  for (const auto& [location, position] : entries_)
    if (position > floors[location])
      hash.add(uint64_t{location} << 32 | (position - floors[location]));
  hash.add(UINT64_MAX);
}

Location WeakMemory::add(uint64_t initial) {
  locations_.push_back({{.value = initial}});
  return static_cast<Location>(locations_.size() - 1);
}

size_t WeakMemory::add_thread() {
  threads_.emplace_back();
  return threads_.size() - 1;
}

// Sequentially consistent accesses count as if a fence stood on either side: a little stronger than
// the standard.
void WeakMemory::begin(Thread& thread, std::memory_order order) {
  if (order == std::memory_order_seq_cst) thread.seen.join(sequential_);
}

void WeakMemory::end(Thread& thread, std::memory_order order) {
  if (order == std::memory_order_seq_cst) sequential_.join(thread.seen);
}

size_t WeakMemory::loads(size_t thread, Location location, std::memory_order order) {
  begin(threads_[thread], order);
  return newest(location) - threads_[thread].seen.at(location) + 1;
}

uint64_t WeakMemory::load(size_t thread, Location location, std::memory_order order, size_t which) {
  Thread& self = threads_[thread];
  const uint32_t position = newest(location) - static_cast<uint32_t>(which);
  const Value& value = locations_[location][position];
  self.seen.raise(location, position);
  self.acquirable.join(value.view);
  if (acquires(order)) self.seen.join(value.view);
  end(self, order);
  return value.value;
}

size_t WeakMemory::stores(size_t thread, Location location, std::memory_order order) {
  begin(threads_[thread], order);
  const auto& values = locations_[location];
  const auto first = values.begin() + threads_[thread].seen.at(location);
  return static_cast<size_t>(
      std::count_if(first, values.end(), [](const Value& value) { return !value.taken; }));
}

uint32_t WeakMemory::behind(const Thread& thread, Location location, size_t which) const {
  const auto& values = locations_[location];
  uint32_t position = newest(location);
  while (position > thread.seen.at(location) && (values[position].taken || which > 0)) {
    if (!values[position].taken) --which;
    --position;
  }
  return position;
}

void WeakMemory::insert(Thread& thread, Location location, uint32_t position, uint64_t value,
                        std::memory_order order, const View* continued) {
  if (position <= newest(location)) {
    for (Thread& one : threads_)
      for (View* view : {&one.seen, &one.acquirable, &one.releasable})
        view->make_room(location, position);
    for (auto& values : locations_)
      for (Value& one : values) one.view.make_room(location, position);
    sequential_.make_room(location, position);
  }
  thread.seen.raise(location, position);
  Value made{.value = value, .view = releases(order) ? thread.seen : thread.releasable};
  made.view.raise(location, position);
  if (continued != nullptr) made.view.join(*continued);
  locations_[location].insert(locations_[location].begin() + position, std::move(made));
  end(thread, order);
}

void WeakMemory::store(size_t thread, Location location, uint64_t value, std::memory_order order,
                       size_t which) {
  Thread& self = threads_[thread];
  insert(self, location, behind(self, location, which) + 1, value, order, nullptr);
}

uint64_t WeakMemory::exchange(size_t thread, Location location,
                              const std::function<uint64_t(uint64_t)>& change,
                              std::memory_order order, size_t which) {
  Thread& self = threads_[thread];
  const uint32_t position = behind(self, location, which);
  Value& value = locations_[location][position];
  value.taken = true;
  const uint64_t old = value.value;
  // The exchanged value continues the release sequence of the value that it replaces.
  const View continued = value.view;
  self.seen.raise(location, position);
  self.acquirable.join(continued);
  if (acquires(order)) self.seen.join(continued);
  insert(self, location, position + 1, change(old), order, &continued);
  return old;
}

void WeakMemory::fence(size_t thread, std::memory_order order) {
  Thread& self = threads_[thread];
  if (acquires(order)) self.seen.join(self.acquirable);
  if (order == std::memory_order_seq_cst) {
    self.seen.join(sequential_);
    sequential_ = self.seen;
  }
  if (releases(order)) self.releasable = self.seen;
}

bool WeakMemory::plain_read(size_t thread, Location location, Location readers) {
  Thread& self = threads_[thread];
  const Location mine = readers + static_cast<Location>(thread);
  const bool ordered = self.seen.at(location) == newest(location);
  store(thread, mine, 0, std::memory_order_relaxed, 0);
  return ordered;
}

bool WeakMemory::plain_write(size_t thread, Location location, Location readers) {
  Thread& self = threads_[thread];
  bool ordered = self.seen.at(location) == newest(location);
  for (size_t i = 0; i < threads_.size(); ++i) {
    const Location reader = readers + static_cast<Location>(i);
    ordered = ordered && self.seen.at(reader) == newest(reader);
  }
  store(thread, location, 0, std::memory_order_relaxed, 0);
  return ordered;
}

size_t WeakMemory::add_bell() {
  bells_.emplace_back();
  return bells_.size() - 1;
}

void WeakMemory::ring(size_t thread, size_t bell) {
  bells_[bell].rung = true;
  bells_[bell].view.join(threads_[thread].seen);
  threads_[thread].seen.join(bells_[bell].view);
}

void WeakMemory::silence(size_t thread, size_t bell) {
  bells_[bell].rung = false;
  threads_[thread].seen.join(bells_[bell].view);
  bells_[bell].view.join(threads_[thread].seen);
}

// Leaves out values that no thread can read any more: every thread has seen a newer value. No store
// can be ordered before them.
void WeakMemory::add_to(Hash& hash) const {
  std::vector<uint32_t> floors(locations_.size());
  for (Location i = 0; i < floors.size(); ++i) {
    floors[i] = newest(i);
    if (floors[i] == 0) continue;
    for (const Thread& thread : threads_)
      if (!thread.over) floors[i] = std::min(floors[i], thread.seen.at(i));
  }
  for (Location i = 0; i < floors.size(); ++i) {
    const auto& values = locations_[i];
    if (values.size() == 1) continue;  // as the scenario began
    hash.add(i);
    for (size_t at = floors[i]; at < values.size(); ++at) {
      hash.add(values[at].value);
      hash.add(values[at].taken);
      values[at].view.add_to(hash, floors);
    }
    hash.add(UINT64_MAX);
  }
  for (const Thread& thread : threads_)
    for (const View* view : {&thread.seen, &thread.acquirable, &thread.releasable})
      view->add_to(hash, floors);
  sequential_.add_to(hash, floors);
  for (const Bell& bell : bells_) {
    hash.add(bell.rung);
    bell.view.add_to(hash, floors);
  }
}

}  // namespace hccl_like::model

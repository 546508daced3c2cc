#include "memory/strict.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/error.h"
#include "memory/faults.h"

namespace torch_sim {
namespace {

constexpr uintptr_t kPage = 4096;
constexpr uint16_t kForGood = 1 << 15;  // beside a page's count, which then says nothing

uint64_t seed() {
  static const uint64_t value = [] {
    const char* text = std::getenv("TORCH_SIM_STRICT");
    return text ? std::strtoull(text, nullptr, 10) : 0;
  }();
  return value;
}

std::string discrete_setting() {
  const char* text = std::getenv("TORCH_SIM_DISCRETE");
  return text ? text : "";
}

// The next of a sequence that the seed determines, as far as threads take turns alike.
uint64_t next_random() {
  static std::atomic<uint64_t> drawn{0};
  uint64_t x = (seed() << 32) + 0x9e3779b97f4a7c15 * ++drawn;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// How many windows are open on each page of the kernel range. The table is as sparse as the memory:
// addresses only.
struct Pages {
  std::mutex mutex;
  const AddressSpace* space = nullptr;
  uintptr_t first = 0;
  uint16_t* open = nullptr;
  std::multimap<uintptr_t, size_t> named;  // those of open_window
};
Pages& pages() {
  static auto& all = *new Pages();
  return all;
}

// Adds `change` to the counts of a range, and gives or takes access where they leave or reach 0.
// With the lock held.
void count(uintptr_t at, size_t bytes, int change) {
  stay_on_top();
  Pages& all = pages();
  const int access = change > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
  const uintptr_t begin = at / kPage * kPage, end = at + bytes;
  uintptr_t run = 0;  // where the pages that change began, 0: there are none
  const auto change_access = [&](uintptr_t until) {
    if (run != 0 && mprotect(reinterpret_cast<void*>(run), until - run, access) != 0) {
      std::perror("sim: mprotect of device memory");
      std::abort();
    }
    run = 0;
  };
  for (uintptr_t page = begin; page < end; page += kPage) {
    uint16_t& open = all.open[(page - all.first) / kPage];
    const bool changes = change > 0 ? open == 0 : open == 1;
    open = static_cast<uint16_t>(open + change);
    if (!changes)
      change_access(page);
    else if (run == 0)
      run = page;
  }
  change_access((end + kPage - 1) / kPage * kPage);
}

bool concerns(const void* at, size_t bytes) {
  return protects_memory() && bytes > 0 && pages().space && pages().space->holds_kernel(at);
}

}  // namespace

bool strict() { return seed() != 0; }

bool discrete() {
  static const bool value = discrete_setting() == "1";
  return value;
}

bool protects_memory() { return strict() || discrete(); }

void begin_protection(const AddressSpace& space) {
  if (const std::string text = discrete_setting(); !text.empty() && text != "0" && text != "1")
    throw std::invalid_argument("TORCH_SIM_DISCRETE=" + text + " must be 0 or 1");
  if (!protects_memory()) return;
  Pages& all = pages();
  const size_t entries = space.total() / kPage;
  void* table = mmap(nullptr, entries * sizeof(uint16_t), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED)
    throw OutOfMemory(system_error("sim: no addresses left for the table of open pages"));
  all.open = static_cast<uint16_t*>(table);
  all.first = reinterpret_cast<uintptr_t>(space.to_kernel(space.device_range(0)));
  all.space = &space;
  watch_faults(space, seed());
}

Window::Window(const void* kernel, size_t bytes) : bytes_(bytes) {
  if (!concerns(kernel, bytes)) return;
  at_ = reinterpret_cast<uintptr_t>(kernel);
  std::lock_guard lock(pages().mutex);
  count(at_, bytes_, +1);
}

Window::~Window() {
  if (at_ == 0) return;
  std::lock_guard lock(pages().mutex);
  count(at_, bytes_, -1);
}

void open_window(const void* kernel, size_t bytes) {
  if (!concerns(kernel, bytes)) return;
  const auto at = reinterpret_cast<uintptr_t>(kernel);
  std::lock_guard lock(pages().mutex);
  pages().named.emplace(at, bytes);
  count(at, bytes, +1);
}

void close_window(const void* kernel) {
  if (!concerns(kernel, 1)) return;
  std::lock_guard lock(pages().mutex);
  auto [found, last] = pages().named.equal_range(reinterpret_cast<uintptr_t>(kernel));
  if (found == last) return;  // of no bytes
  for (auto other = std::next(found); other != last; ++other)
    if (other->second < found->second) found = other;
  count(found->first, found->second, -1);
  pages().named.erase(found);
}

void open_for_good(const void* kernel, size_t bytes) {
  if (!concerns(kernel, bytes)) return;
  Pages& all = pages();
  const auto at = reinterpret_cast<uintptr_t>(kernel);
  std::lock_guard lock(all.mutex);
  count(at, bytes, +1);
  for (uintptr_t page = at / kPage * kPage; page < at + bytes; page += kPage) {
    uint16_t& open = all.open[(page - all.first) / kPage];
    open = static_cast<uint16_t>((open - 1) | kForGood);
  }
}

void reopen_windows(const void* kernel, size_t bytes) {
  if (!concerns(kernel, bytes)) return;
  Pages& all = pages();
  const auto at = reinterpret_cast<uintptr_t>(kernel);
  std::lock_guard lock(all.mutex);
  for (uintptr_t page = at / kPage * kPage; page < at + bytes; page += kPage)
    if (all.open[(page - all.first) / kPage] != 0 &&
        mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE) != 0) {
      std::perror("sim: mprotect of device memory");
      std::abort();
    }
}

void rest() {
  if (!strict()) return;
  const uint64_t drawn = next_random();
  if (drawn % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds((drawn >> 8) % 300));
}

bool by_chance() { return strict() && next_random() % 2 == 0; }

}  // namespace torch_sim

#pragma once
// The memory of C++ as a machine that can be stepped: every location keeps all values ever stored
// to it, in their modification order, and every thread has a view of how far it has seen each
// location at least.
//
// It is the operational form of the memory model without load buffering (what the papers call
// RC11's, or "promising" without promises): a load may return any value that the thread's view
// allows, a store may go anywhere in the modification order behind what the thread has seen. x86
// and ARM show less.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace hccl_like::model {

using Location = uint32_t;

// Feeds numbers into one 64-bit hash.
class Hash {
 public:
  void add(uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15;
    state_ ^= state_ >> 29;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x243f6a8885a308d3;
};

// For each location a position in its modification order; 0 unless raised.
class View {
 public:
  uint32_t at(Location location) const;
  void raise(Location location, uint32_t position);
  void join(const View& other);
  // A value was put in front of `position`: that and those behind it have moved up.
  void make_room(Location location, uint32_t position);
  // Positions count from `floors`; those before make no difference any more.
  void add_to(Hash& hash, const std::vector<uint32_t>& floors) const;

 private:
  std::vector<std::pair<Location, uint32_t>> entries_;  // sorted
};

class WeakMemory {
 public:
  Location add(uint64_t initial);
  // Threads begin with what is there now.
  size_t add_thread();
  void end_thread(size_t thread) { threads_[thread] = {.over = true}; }

  // Before threads begin and after they are over: the last value, without a history.
  uint64_t last(Location location) const { return locations_[location].back().value; }
  void reset(Location location, uint64_t value) { locations_[location].back().value = value; }

  // Each operation has several possible results, numbered from 0, the one with the most recent
  // value. The number of them depends on the order, too: a sequentially consistent operation has
  // seen what others of that kind have.
  size_t loads(size_t thread, Location location, std::memory_order order);
  uint64_t load(size_t thread, Location location, std::memory_order order, size_t which);
  size_t stores(size_t thread, Location location, std::memory_order order);
  void store(size_t thread, Location location, uint64_t value, std::memory_order order,
             size_t which);
  // Returns what it replaced by change(that). As many results as a store has.
  uint64_t exchange(size_t thread, Location location,
                    const std::function<uint64_t(uint64_t)>& change, std::memory_order order,
                    size_t which);
  void fence(size_t thread, std::memory_order order);

  // Accesses to ordinary memory, `location` standing for it: false if another thread's is not
  // ordered with it. `readers`: the first of a row of locations, one for each thread.
  bool plain_read(size_t thread, Location location, Location readers);
  bool plain_write(size_t thread, Location location, Location readers);

  // A kernel object on which a thread sleeps. It is rung or not, and has no history. A woken thread
  // sees the memory that all ringing threads saw.
  size_t add_bell();
  bool rung(size_t bell) const { return bells_[bell].rung; }
  void ring(size_t thread, size_t bell);
  void silence(size_t thread, size_t bell);

  // The same for two memories that behave alike from here on.
  void add_to(Hash& hash) const;

 private:
  struct Bell {
    bool rung = false;
    View view;
  };
  struct Value {
    uint64_t value = 0;
    View view;  // what a thread that acquires it has seen
    // The next in order was made from it by an exchange: nothing fits in between.
    bool taken = false;
  };
  struct Thread {
    View seen;
    View acquirable;  // with an acquiring fence
    View releasable;  // of the last releasing fence
    bool over = false;
  };

  void begin(Thread& thread, std::memory_order order);
  void end(Thread& thread, std::memory_order order);
  // The position of the which-th value from the end that something can be put behind.
  uint32_t behind(const Thread& thread, Location location, size_t which) const;
  void insert(Thread& thread, Location location, uint32_t position, uint64_t value,
              std::memory_order order, const View* continued);
  uint32_t newest(Location location) const {
    return static_cast<uint32_t>(locations_[location].size() - 1);
  }

  std::vector<std::vector<Value>> locations_;
  std::vector<Bell> bells_;
  std::vector<Thread> threads_;
  View sequential_;  // what the last sequentially consistent fence had seen
};

}  // namespace hccl_like::model

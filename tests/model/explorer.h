#pragma once
// Runs a few threads in every order, and with every value that their loads may return, and says
// whether any of these executions fails: by a data race, by a check that does not hold, or because
// nobody can go on.
//
// Threads are fibers of this one. Each stops before every operation on shared memory; which goes
// on, and what its load returns, are choices, and the explorer makes all of them, one execution
// after another. An execution that comes to a state seen before is left there: what a thread does
// next follows from the values it has read so far, so a state is these and the memory.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/model/weak_memory.h"

namespace hccl_like::model {

// Makes the code under test worse, to see that the explorer notices.
struct Flaw {
  std::string_view thread;          // fences of this thread are left out
  std::string_view relaxed_inside;  // operations in functions whose signature has this are relaxed
};

struct Verdict {
  std::string
      failure;  // empty: every execution is right; else what failed, and how it came to that
  size_t executions = 0;
  size_t states = 0;
  // Number of schedules that the executions cover. An execution that stopped at a state seen before
  // counts for all schedules that go on from that state. Schedules that repeat a state are not
  // counted.
  double schedules = 0;
};

class Explorer {
 public:
  // Within a scenario: adds a thread. Functions own what they work on; what is made in a thread is
  // not always destroyed.
  void thread(std::string name, std::function<void()> body);
  // The same for one that may die before any of its operations; the system then does `afterwards`
  // in its stead, which sees all that the thread has done.
  void mortal(std::string name, std::function<void()> body, std::function<void()> afterwards);
  // Within a scenario: so often a sleeper may wake though nobody rang, as others may ring for
  // reasons of their own.
  void startle(size_t times) { startles_ = times; }
  // Within a scenario: looks at the end of every execution in which all threads came to theirs.
  void finally(std::function<void()> look) { finally_ = std::move(look); }

  // `scenario` makes everything anew, and adds the threads.
  static Verdict explore(const std::function<void(Explorer&)>& scenario, Flaw flaw = {});

  // Of the execution under way; null outside.
  static Explorer* active() { return active_; }

  // Operations of modelled memory. Outside of threads they take effect at once.
  Location add(uint64_t initial);
  uint64_t load(Location location, std::memory_order order, const std::source_location& where);
  void store(Location location, uint64_t value, std::memory_order order,
             const std::source_location& where);
  uint64_t exchange(Location location, const std::function<uint64_t(uint64_t)>& change,
                    std::memory_order order, const std::source_location& where);
  void fence(std::memory_order order, const std::source_location& where);
  Location add_plain();
  void plain(Location location, bool write, const std::source_location& where);
  size_t add_bell() { return memory_.add_bell(); }
  void ring(size_t bell, const std::source_location& where);
  // Sleeps until it is rung, and silences it.
  void sleep(size_t bell, const std::source_location& where);
  // All that the thread knows at this place in its program is `digest`: what it has read before is
  // forgotten. Without these, a loop that has turned twice is never in a state where it was after
  // one turn.
  void landmark(uint64_t digest);

  // Ends this execution, which is wrong.
  void fail(const std::string& why);

 private:
  struct Choice {
    uint32_t taken, of;
    double schedules = 0;  // of the choices that are done with
  };
  struct Visit {
    size_t depth;  // choices that led there
    uint64_t state;
  };
  struct Fiber;
  // A possible next step.
  struct Move {
    Fiber* fiber;
    bool dies = false;
  };
  struct Step {  // for the story of a failure
    const Fiber* fiber;
    const char* what;
    uint64_t value;
    std::source_location where;
  };

  explicit Explorer(Flaw flaw);
  ~Explorer();

  void execute(const std::function<void(Explorer&)>& scenario);
  void run();
  bool next_execution();
  size_t choose(size_t of);
  bool seen_before();
  std::vector<Move> able();
  static void prepare(Fiber& fiber);
  void die(Fiber& fiber);
  void resume(Fiber& fiber);
  void pause();
  void before(const char* what, const std::source_location& where, bool noticed = true);
  bool is_shared(Location location, bool writes);
  void remember(uint64_t value);
  std::memory_order weakened(std::memory_order order, const std::source_location& where) const;
  std::string story() const;
  static void enter();

  inline static Explorer* active_ = nullptr;

  const Flaw flaw_;
  WeakMemory memory_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<Fiber>> spare_;
  Fiber* running_ = nullptr;
  std::function<void()> finally_;
  size_t startles_ = 0;
  std::vector<Location> plain_;
  std::vector<Location> readers_;
  // For each location the one thread that uses it, or that several do, and whether any writes to
  // it. Found out on the way: when a location turns out to be shared that was not taken for it,
  // exploration begins anew.
  static constexpr size_t kNobody = SIZE_MAX, kSeveral = SIZE_MAX - 1;
  struct Use {
    bool shared() const { return user == kSeveral && written; }
    size_t user = kNobody;
    bool written = false;
  };
  std::vector<Use> uses_;
  bool begin_anew_ = false;
  std::vector<Choice> path_;
  size_t depth_ = 0;
  // With the schedules that go on from there; 0 as long as it is not known.
  std::unordered_map<uint64_t, double> states_;
  std::vector<Visit> visits_;  // to states of which it is not known
  double went_on_ = 0;         // schedules from the last state of this execution
  std::vector<Step> steps_;
  Verdict verdict_;
};

// A check within a scenario.
inline void check(bool holds, const std::string& what) {
  if (!holds) Explorer::active()->fail(what);
}

}  // namespace hccl_like::model

#include "bench/cpp/measure.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>

#include "core/base/error.h"

namespace hccl_like::bench {
namespace {

using Clock = std::chrono::steady_clock;

class Runner {
 public:
  Runner(Communicator& communicator, SharedBarrier& barrier, Buffers& buffers,
         const Options& options)
      : communicator_(communicator),
        barrier_(barrier),
        buffers_(buffers),
        options_(options),
        calls_(buffers.calls()) {}

  void run(int times) {
    // The common case is the one that a blocking caller takes: nothing is kept, nobody else is
    // woken.
    if (times == 1 && calls_.size() == 1) return communicator_.run(calls_[0]);
    if (times == 1) return communicator_.run(calls_);
    operations_.clear();
    for (int i = 0; i < times; ++i)
      for (const Call& call : calls_) operations_.push_back(communicator_.prepare(call));
    communicator_.launch(operations_, true);
    communicator_.engine().wait(operations_, Deadline::after(communicator_.timeout()));
    for (const auto& operation : operations_) {
      if (const Error* error = operation->error()) throw Exception(*error);
    }
  }

  // Microseconds of one operation.
  double time(int iterations) {
    if (options_.dirty) {
      buffers_.rewrite();
      barrier_.wait(
          static_cast<uint32_t>(options_.ranks));  // or the slower writer's time would count, too
    }
    const auto begin = Clock::now();
    run(iterations * options_.aggregated);
    for (int more = 1; more < options_.batch; ++more) {
      if (options_.dirty) buffers_.rewrite();
      run(iterations * options_.aggregated);
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
           (static_cast<double>(iterations) * options_.aggregated * options_.batch);
  }

 private:
  Communicator& communicator_;
  SharedBarrier& barrier_;
  Buffers& buffers_;
  const Options& options_;
  std::vector<Call> calls_;
  std::vector<std::shared_ptr<Operation>> operations_;
};

}  // namespace

Timing measure(Communicator& communicator, SharedBarrier& barrier, Buffers& buffers,
               const Options& options) {
  Runner runner(communicator, barrier, buffers, options);
  Timing timing;
  for (int salt = 0; salt < options.checks; ++salt) {
    buffers.prepare(salt);
    runner.run(1);
    timing.wrong += buffers.count_wrong(salt);
  }
  // Zeros from here on: sums that grow without end would be timed as infinities.
  std::ranges::fill(buffers.send(), std::byte{0});
  std::ranges::fill(buffers.receive(), std::byte{0});
  for (int i = 0; i < options.warmup; ++i) runner.run(1);

  std::vector<double> times;
  if (options.blocking == 0) times.push_back(runner.time(options.iterations));
  for (int i = 0; options.blocking == 1 && i < options.iterations; ++i)
    times.push_back(runner.time(1));
  std::ranges::sort(times);
  const size_t n = times.size();
  timing.median_us = (times[(n - 1) / 2] + times[n / 2]) / 2;
  timing.p99_us = times[std::min(n - 1, static_cast<size_t>(0.99 * static_cast<double>(n)))];
  return timing;
}

CpuTime CpuTime::now() {
  CpuTime now;
  std::ifstream stat("/proc/stat");
  std::string label;
  stat >> label;
  const double tick = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (int field = 0; field < 8; ++field) {
    double ticks = 0;
    stat >> ticks;
    now.capacity += ticks / tick;
    const bool idle = field == 3 || field == 4;  // idle, and waiting for disks
    if (!idle) now.busy += ticks / tick;
  }
  timespec own{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  now.own = static_cast<double>(own.tv_sec) + static_cast<double>(own.tv_nsec) * 1e-9;
  return now;
}

CpuTime CpuTime::operator-(const CpuTime& earlier) const {
  return {busy - earlier.busy, capacity - earlier.capacity, own - earlier.own};
}

}  // namespace hccl_like::bench

#include "device/word_functions.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <new>
#include <thread>

#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kLongestSleep{200};
// Yields this long before sleeping: an idle device reaches a function at once.
constexpr std::chrono::microseconds kYieldTime{20};

// Separate cache lines: the device writes one, the host the other.
struct Words {
  alignas(64) volatile uint64_t reached;
  alignas(64) volatile uint64_t returned;
};

using WordsPointer = std::unique_ptr<Words, std::function<void(Words*)>>;

// In host memory that the device accesses fastest.
WordsPointer make_words(const hcd_api& api, int device) {
  void* memory = nullptr;
  if (api.host_alloc == nullptr || api.host_alloc(device, sizeof(Words), &memory) != HCD_OK)
    return {new Words{}, std::default_delete<Words>()};
  return {new (memory) Words{}, [&api, device](Words* words) { api.host_free(device, words); }};
}

uint64_t load(const volatile uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

void await(const volatile uint64_t& word, uint64_t value) {
  const auto began = Clock::now();
  while (load(word) < value) {
    const auto waited = Clock::now() - began;
    if (waited < kYieldTime)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::min<Clock::duration>(kLongestSleep, waited / 16));
  }
}

}  // namespace

class WordFunctions::Lane {
 public:
  Lane(const hcd_api& api, int device, hcd_stream stream)
      : api_(api), device_(device), stream_(stream), words_(make_words(api, device)) {
    thread_ = own_thread("runs functions in the order of a device's stream", [this] { work(); });
  }
  ~Lane() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Outcome queue(void (*fn)(void*), void* arg) {
    const std::lock_guard lock(mutex_);
    const uint64_t number = ++queued_;
    volatile uint64_t* const reached = &words_->reached;
    if (const int status = api_.stream_write_value(device_, stream_, reached, number))
      return {status, "stream_write_value"};
    if (const int status = api_.stream_wait_value(device_, stream_, &words_->returned, number))
      return {status, "stream_wait_value"};
    tasks_.push_back({number, fn, arg});
    changed_.notify_one();
    return {};
  }

 private:
  struct Task {
    uint64_t number;
    void (*fn)(void*);
    void* arg;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const Task task = tasks_.front();
      tasks_.pop_front();
      lock.unlock();
      await(words_->reached, task.number);
      task.fn(task.arg);
      __atomic_store_n(&words_->returned, task.number, __ATOMIC_RELEASE);
      lock.lock();
    }
  }

  const hcd_api& api_;
  const int device_;
  const hcd_stream stream_;
  const WordsPointer words_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  uint64_t queued_ = 0;  // total count
  bool stopping_ = false;
  std::thread thread_;
};

WordFunctions::WordFunctions(const hcd_api& api) : api_(api) {}

WordFunctions::~WordFunctions() = default;

WordFunctions::Outcome WordFunctions::queue(int device, hcd_stream stream, void (*fn)(void*),
                                            void* arg) {
  if (stream == 0) {  // "do it now"
    fn(arg);
    return {};
  }
  Lane* lane = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& its = lanes_[{device, stream}];
    if (!its) its = std::make_unique<Lane>(api_, device, stream);
    lane = its.get();
  }
  return lane->queue(fn, arg);
}

}  // namespace hccl_like

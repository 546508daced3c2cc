// Host functions in stream order. The driver runs the host functions of all streams on one thread:
// a function that blocks would stall every stream and could deadlock two ranks. So the driver's
// thread hands each function to a worker thread, and the stream waits for a word written on its
// return.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "device/cuda/entries.h"

namespace hccl_like::cuda {
namespace {

struct Task {
  void (*fn)(void*);
  void* arg;
  uint64_t* returned;  // 0 until fn returns
};

// One thread for each blocked function; threads are reused.
class Workers {
 public:
  // If no thread can be created, the function runs here and delays other streams.
  void run(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.size() < idle_ || start()) {
        tasks_.push_back(task);
        changed_.notify_one();
        return;
      }
    }
    perform(task);
  }

 private:
  bool start() {
    try {
      std::thread([this] { work(); }).detach();
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }

  static void perform(const Task& task) {
    task.fn(task.arg);
    __atomic_store_n(task.returned, uint64_t{1}, __ATOMIC_RELEASE);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      --idle_;
      const Task task = tasks_.front();
      tasks_.pop_front();
      lock.unlock();
      perform(task);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  size_t idle_ = 0;
};

// Never destroyed: the driver may call during process exit.
Workers& workers() {
  static auto& all = *new Workers();
  return all;
}

// Words for device-side waits, each used by one function at a time. A stream has passed its wait
// once its function has returned the word.
class Words {
 public:
  uint64_t* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      constexpr size_t kWords = 512;
      void* block = nullptr;
      HCCL_LIKE_CUDA(cuMemHostAlloc, &block, kWords * sizeof(uint64_t),
                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
      for (size_t i = 0; i < kWords; ++i) free_.push_back(static_cast<uint64_t*>(block) + i);
    }
    uint64_t* const word = free_.back();
    free_.pop_back();
    __atomic_store_n(word, uint64_t{0}, __ATOMIC_RELEASE);
    return word;
  }
  void give_back(uint64_t* word) {
    const std::lock_guard lock(mutex_);
    free_.push_back(word);
  }

 private:
  std::mutex mutex_;
  std::vector<uint64_t*> free_;
};

Words& words() {
  static auto& all = *new Words();
  return all;
}

void CUDA_CB hand_over(void* task) {
  workers().run(*static_cast<Task*>(task));
  delete static_cast<Task*>(task);
}

void CUDA_CB put_back(void* word) { words().give_back(static_cast<uint64_t*>(word)); }

}  // namespace

void queue_host_function(int, CUstream stream, void (*fn)(void*), void* arg) {
  uint64_t* const word = words().take();
  CUdeviceptr seen = 0;
  HCCL_LIKE_CUDA(cuMemHostGetDevicePointer, &seen, word, 0);
  HCCL_LIKE_CUDA(cuLaunchHostFunc, stream, hand_over, new Task{fn, arg, word});
  HCCL_LIKE_CUDA(cuStreamWaitValue64, stream, seen, 1, CU_STREAM_WAIT_VALUE_GEQ);
  HCCL_LIKE_CUDA(cuLaunchHostFunc, stream, put_back, word);
}

}  // namespace hccl_like::cuda

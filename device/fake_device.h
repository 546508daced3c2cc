#pragma once
// A device for tests that is as unlike the CPU as the interface allows: opaque handles instead of addresses, one stream
// with a thread of its own, copies that return before they are done.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "device/plugin.h"

namespace hccl_like::fake_device {

inline constexpr hcd_stream kStream = 17;

// Runs what is queued, one after the other, until it is destroyed.
class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() {
    enqueue([this] { ends_ = true; });
    thread_.join();
  }

  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      changed_.wait(lock, [&] { return !queue_.empty(); });
      const auto& work =
          queue_.front();  // stays queued while it runs, so that synchronize waits for it
      lock.unlock();
      work();
      lock.lock();
      queue_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ends_ = false;  // used by the thread alone
  std::thread thread_;
};

struct Allocation {
  std::vector<unsigned char> bytes;
};

inline thread_local const char* last_failure = "";
inline Worker* worker = nullptr;
inline int starts = 0;  // minus ends

inline int fail(int status, const char* sentence) {
  last_failure = sentence;
  return status;
}

// Null if the range is not inside the allocation.
inline unsigned char* find(hcd_ref ref, size_t bytes) {
  auto& all = static_cast<Allocation*>(ref.base)->bytes;
  return ref.offset + bytes <= all.size() ? all.data() + ref.offset : nullptr;
}

inline int in_order(hcd_stream stream, std::function<void()> work) {
  if (stream != 0 && stream != kStream) return fail(HCD_INVALID, "there is no such stream");
  if (stream == 0) {
    work();
  } else {
    worker->enqueue(std::move(work));
  }
  return HCD_OK;
}

inline int copy_d2h(int, void* host, hcd_ref from, size_t bytes, hcd_stream stream) {
  const unsigned char* const source = find(from, bytes);
  if (source == nullptr) return fail(HCD_INVALID, "the range leaves the allocation");
  return in_order(stream, [=] { std::copy_n(source, bytes, static_cast<unsigned char*>(host)); });
}
inline int copy_h2d(int, hcd_ref to, const void* host, size_t bytes, hcd_stream stream) {
  unsigned char* const target = find(to, bytes);
  if (target == nullptr) return fail(HCD_INVALID, "the range leaves the allocation");
  return in_order(stream,
                  [=] { std::copy_n(static_cast<const unsigned char*>(host), bytes, target); });
}

inline uint64_t load(const volatile uint64_t* word) {
  return __atomic_load_n(const_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE);
}

inline hcd_api make_api() {
  hcd_api api{};
  api.size = sizeof(api);
  api.name = "fake";
  api.init = [] {
    if (++starts == 1) worker = new Worker;
    return int{HCD_OK};
  };
  api.fini = [] {
    if (--starts > 0) return;
    delete worker;
    worker = nullptr;
  };
  api.last_error = [] { return last_failure; };
  api.device_info = [](int device, hcd_device_info* out) {
    if (device != 0) return fail(HCD_INVALID, "there is one device, 0");
    hcd_device_info info{};
    info.size = out->size;
    info.caps = HCD_CAP_ASYNC_COPY;
    info.numa_node = 1;
    std::strcpy(info.uuid, "fake-0");
    std::strcpy(info.pci, "0000:3b:00.0");
    std::memcpy(out, &info, std::min(out->size, sizeof(info)));
    return int{HCD_OK};
  };
  api.stream_from_torch = [](int, int64_t stream_id, void* native, hcd_stream* out) {
    if (native == nullptr && stream_id != 1) return fail(HCD_INVALID, "there is one stream, 1");
    *out = kStream;
    return int{HCD_OK};
  };
  api.stream_sync = [](int, hcd_stream stream) {
    if (stream == kStream) worker->synchronize();
    return int{HCD_OK};
  };
  api.copy_d2h = copy_d2h;
  api.copy_h2d = copy_h2d;
  api.map = [](int, hcd_ref ref, size_t bytes, void** host) {
    *host = find(ref, bytes);
    return *host == nullptr ? fail(HCD_INVALID, "the range leaves the allocation") : int{HCD_OK};
  };
  api.unmap = [](int, void*) { return int{HCD_OK}; };
  api.host_func = [](int, hcd_stream stream, void (*fn)(void*), void* arg) {
    return in_order(stream, [=] { fn(arg); });
  };
  api.stream_wait_value = [](int, hcd_stream stream, const volatile uint64_t* word,
                             uint64_t value) {
    return in_order(stream, [=] {
      while (load(word) < value) std::this_thread::yield();
    });
  };
  api.stream_write_value = [](int, hcd_stream stream, volatile uint64_t* word, uint64_t value) {
    return in_order(
        stream, [=] { __atomic_store_n(const_cast<uint64_t*>(word), value, __ATOMIC_RELEASE); });
  };
  return api;
}

inline const hcd_api& api() {
  static const hcd_api table = make_api();
  return table;
}

inline void* allocate(size_t bytes) { return new Allocation{std::vector<unsigned char>(bytes)}; }
inline void free(void* base) { delete static_cast<Allocation*>(base); }

}  // namespace hccl_like::fake_device

#pragma once
// A test device unlike the CPU: opaque handles, one torch stream, a thread for each stream,
// asynchronous copies. Fills every table entry except those for peers.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "device/plugin.h"
#include "device/reduce/reduce.h"

namespace hccl_like::fake_device {

inline constexpr hcd_stream kStream = 17;

// Runs queued work in order until destroyed.
class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() {  // completes queued work
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
inline std::mutex mutex;
inline std::map<hcd_stream, std::unique_ptr<Worker>> made_streams;
inline std::map<void*, size_t> registered;  // host memory

inline int fail(int status, const char* sentence) {
  last_failure = sentence;
  return status;
}

// Null if the range is outside the allocation.
inline unsigned char* find(hcd_ref ref, size_t bytes) {
  auto& all = static_cast<Allocation*>(ref.base)->bytes;
  return ref.offset + bytes <= all.size() ? all.data() + ref.offset : nullptr;
}

// The stream's thread, or null.
inline Worker* worker_of(hcd_stream stream) {
  if (stream == kStream) return worker;
  const std::lock_guard lock(mutex);
  const auto made = made_streams.find(stream);
  return made == made_streams.end() ? nullptr : made->second.get();
}

inline int in_order(hcd_stream stream, std::function<void()> work) {
  if (stream == 0) {
    work();
    return HCD_OK;
  }
  Worker* const its = worker_of(stream);
  if (its == nullptr) return fail(HCD_INVALID, "there is no such stream");
  its->enqueue(std::move(work));
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

inline int copy_d2d(int, hcd_ref to, hcd_ref from, size_t bytes, hcd_stream stream) {
  unsigned char* const target = find(to, bytes);
  const unsigned char* const source = find(from, bytes);
  if (source == nullptr || target == nullptr)
    return fail(HCD_INVALID, "the range leaves the allocation");
  return in_order(stream, [=] { std::copy_n(source, bytes, target); });
}

inline int reduce(int, hcd_ref inout, hcd_ref in, uint64_t count, hcd_type type, hcd_op op,
                  hcd_stream stream) {
  constexpr ReduceOp kOps[] = {ReduceOp::kSum,   ReduceOp::kProduct, ReduceOp::kMin,
                               ReduceOp::kMax,   ReduceOp::kBitAnd,  ReduceOp::kBitOr,
                               ReduceOp::kBitXor};
  const auto element = static_cast<DataType>(type);  // the numbers are the same
  const Combine combine = reduction(element, kOps[op]).combine;
  if (combine == nullptr) return fail(HCD_UNSUPPORTED, "torch does not define this");
  const size_t bytes = count * size_of(element);
  auto* const target = reinterpret_cast<std::byte*>(find(inout, bytes));
  const auto* const source = reinterpret_cast<const std::byte*>(find(in, bytes));
  if (source == nullptr || target == nullptr)
    return fail(HCD_INVALID, "the range leaves the allocation");
  return in_order(stream, [=] { combine(target, target, source, count); });
}

inline int reduce_many(int, hcd_ref out, const hcd_ref* in, uint32_t sources, uint64_t count,
                       hcd_type type, hcd_op op, double scale, double result_scale,
                       hcd_stream stream) {
  constexpr ReduceOp kOps[] = {ReduceOp::kSum,   ReduceOp::kProduct, ReduceOp::kMin,
                               ReduceOp::kMax,   ReduceOp::kBitAnd,  ReduceOp::kBitOr,
                               ReduceOp::kBitXor};
  const auto element = static_cast<DataType>(type);
  const Scaling scaling{.input = scale, .result = result_scale};
  const Reduction& how = reduction(element, scaling.any() ? ReduceOp::kPreMulSum : kOps[op]);
  if (!how.valid()) return fail(HCD_UNSUPPORTED, "torch does not define this");
  const size_t bytes = count * size_of(element);
  auto* const target = reinterpret_cast<std::byte*>(find(out, bytes));
  std::vector<const std::byte*> from;
  for (uint32_t i = 0; i < sources; ++i)
    from.push_back(reinterpret_cast<const std::byte*>(find(in[i], bytes)));
  if (target == nullptr || std::ranges::find(from, nullptr) != from.end())
    return fail(HCD_INVALID, "the range leaves the allocation");
  return in_order(stream, [=] { how.combine_all(target, nullptr, from, count, scaling); });
}

// An event is a point shared with all its waiters.
using Point = std::atomic<bool>;
inline std::shared_ptr<Point>& point_of(hcd_event event) {
  return *reinterpret_cast<std::shared_ptr<Point>*>(event);
}
inline int event_record(int, hcd_stream stream, hcd_event* out) {
  auto point = std::make_shared<Point>(false);
  const int status = in_order(stream, [point] {
    point->store(true);
    point->notify_all();
  });
  if (status == HCD_OK) *out = reinterpret_cast<hcd_event>(new std::shared_ptr<Point>(point));
  return status;
}

inline int host_register(int, void* host, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (reinterpret_cast<uintptr_t>(host) % 4096 != 0 || bytes % 4096 != 0)
    return fail(HCD_INVALID, "only whole pages are registered");
  return registered.emplace(host, bytes).second ? int{HCD_OK} : fail(HCD_INVALID, "it is already");
}

inline void* allocate(size_t bytes) {
  const std::lock_guard lock(mutex);  // orders it before open() in another thread
  return new Allocation{std::vector<unsigned char>(bytes)};
}
inline void free(void* base) { delete static_cast<Allocation*>(base); }

inline uint64_t load(const volatile uint64_t* word) {
  return __atomic_load_n(const_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE);
}

inline void add_entries_of_1_2(hcd_api& api) {
  api.stream_create = [](int, hcd_stream, int, hcd_stream* out) {
    const std::lock_guard lock(mutex);
    auto made = std::make_unique<Worker>();
    *out = reinterpret_cast<hcd_stream>(made.get());
    made_streams.emplace(*out, std::move(made));
    return int{HCD_OK};
  };
  api.stream_destroy = [](int, hcd_stream stream) {
    const std::lock_guard lock(mutex);
    return made_streams.erase(stream) == 1 ? int{HCD_OK}
                                           : fail(HCD_INVALID, "there is no such stream");
  };
  api.event_record = event_record;
  api.stream_wait_event = [](int, hcd_stream stream, hcd_event event) {
    return in_order(stream, [point = point_of(event)] { point->wait(false); });
  };
  api.event_query = [](int, hcd_event event) {
    return int{point_of(event)->load() ? HCD_OK : HCD_NOT_READY};
  };
  api.event_sync = [](int, hcd_event event) { return point_of(event)->wait(false), int{HCD_OK}; };
  api.event_destroy = [](int, hcd_event event) { return delete &point_of(event), int{HCD_OK}; };
  api.copy_d2d = copy_d2d;
  api.reduce = reduce;
  api.reduce_many = reduce_many;
  api.mem_alloc = [](int, size_t bytes, void** base) {
    return *base = allocate(bytes), int{HCD_OK};
  };
  api.mem_free = [](int, void* base) { return free(base), int{HCD_OK}; };
  api.host_alloc = [](int, size_t bytes, void** host) {
    *host = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return int{HCD_OK};
  };
  api.host_free = [](int, void* host) { return std::free(host), int{HCD_OK}; };
  api.host_register = host_register;
  api.host_unregister = [](int, void* host) {
    const std::lock_guard lock(mutex);
    return registered.erase(host) == 1 ? int{HCD_OK} : fail(HCD_INVALID, "it is not registered");
  };
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
    if (stream == 0) return int{HCD_OK};
    Worker* const its = worker_of(stream);
    if (its == nullptr) return fail(HCD_INVALID, "there is no such stream");
    return its->synchronize(), int{HCD_OK};
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
  add_entries_of_1_2(api);
  return api;
}

inline const hcd_api& api() {
  static const hcd_api table = make_api();
  return table;
}

}  // namespace hccl_like::fake_device

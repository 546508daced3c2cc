#pragma once
// Host functions in stream order through word waits, for plugins without host_func.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "device/plugin.h"

namespace hccl_like {

// Each stream has two words and a thread. The stream stores to the first word and waits for the
// second. The thread polls the first word, runs the function, and stores to the second. So a
// function may block, and functions of several streams run concurrently. Thread-safe.
//
// The thread notices the stream with a delay of up to 1/16 of the wait, at most 200 us.
class WordFunctions {
 public:
  // `api` needs stream_wait_value and stream_write_value, and must outlive this.
  explicit WordFunctions(const hcd_api& api);
  // All queued work, including later work of the streams, must be done.
  ~WordFunctions();
  WordFunctions(const WordFunctions&) = delete;
  WordFunctions& operator=(const WordFunctions&) = delete;

  // The status of a table entry and its name.
  struct Outcome {
    int status = HCD_OK;
    const char* entry = nullptr;
  };
  // Does not block, except in the plugin's host_alloc for a stream's first function. On failure fn
  // never runs, and the stream may be stuck in its wait. Throws kSystem if no thread can be
  // created.
  Outcome queue(int device, hcd_stream stream, void (*fn)(void*), void* arg);

 private:
  class Lane;

  const hcd_api& api_;
  std::mutex mutex_;  // guards lanes_
  std::map<std::pair<int, hcd_stream>, std::unique_ptr<Lane>> lanes_;
};

}  // namespace hccl_like

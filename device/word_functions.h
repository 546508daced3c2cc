#pragma once
// Functions of the host in the order of a device's streams, made of waits for words, for a plugin
// without host_func.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "device/plugin.h"

namespace hccl_like {

// For each stream two words and a thread. The stream stores to the first word when it gets to a
// function, and waits for the second; the thread, which watches the first, runs the function and
// then stores to the second. So a function may block for as long as it likes and still end by a
// timeout of its own, and those of several streams run at the same time. Any thread.
//
// The thread sees that a stream is there later by a sixteenth of what it waited, and by 200 us at
// most.
class WordFunctions {
 public:
  // The table has stream_wait_value and stream_write_value, and outlives this.
  explicit WordFunctions(const hcd_api& api);
  // Everything queued must be done, also what the streams have behind the functions.
  ~WordFunctions();
  WordFunctions(const WordFunctions&) = delete;
  WordFunctions& operator=(const WordFunctions&) = delete;

  // What an entry of the table returned, and which.
  struct Outcome {
    int status = HCD_OK;
    const char* entry = nullptr;
  };
  // Does not block, except in the plugin's host_alloc with the first function of a stream. After a
  // failure fn will not run, and the stream may wait for nothing. Throws kSystem if there is no
  // thread to be had.
  Outcome queue(int device, hcd_stream stream, void (*fn)(void*), void* arg);

 private:
  class Lane;

  const hcd_api& api_;
  std::mutex mutex_;  // guards what follows
  std::map<std::pair<int, hcd_stream>, std::unique_ptr<Lane>> lanes_;
};

}  // namespace hccl_like

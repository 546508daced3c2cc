#pragma once
// Graphs: streams record their work instead of doing it, and a stream does all of it, again and
// again.
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/event.h"
#include "runtime/stream.h"

namespace torch_sim {

// Recorded work, and the device memory that was allocated meanwhile: nothing else uses that memory
// while the graph exists.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Queues all the work. The stream keeps the graph until it has passed.
  static void launch(std::shared_ptr<const Graph> graph, Stream& stream);
  // For the allocator: true if a graph keeps this memory, and frees it in the end.
  static bool keeps(void* at);

 private:
  friend class Capture;

  std::vector<Stream::Work> works_;
  std::vector<void*> memory_;
};

// The recording of one graph. It begins on one stream, and streams that wait for an event of a
// recording stream take part. Work is done in the order in which it was recorded: the branches of a
// graph do not run at the same time. Any thread. Wrong use throws std::logic_error.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  static void begin(Stream& origin);
  // On the stream of begin(). Refused if a stream that took part has later work than any recording
  // stream waits for.
  static std::shared_ptr<const Graph> end(Stream& origin);

  void add(const Stream& stream, Stream::Work work);
  void add_memory(void* at);
  RecordingPtr record(const Stream& stream);
  // `stream` waits for a recording of this capture.
  void wait(Stream& stream, const Recording& recording);

 private:
  explicit Capture(Stream& origin) : origin_(origin) {}

  Stream& origin_;
  std::mutex mutex_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();  // null: the capture is over
  std::map<Stream*, size_t> joined_;  // and how much of a stream's work nothing waits for
};

}  // namespace torch_sim

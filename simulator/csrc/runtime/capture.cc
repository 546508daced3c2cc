#include "runtime/capture.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "memory/strict.h"
#include "runtime/runtime.h"

namespace torch_sim {
namespace {

// Memory of all graphs, and whether its tensor is gone.
struct Kept {
  std::mutex mutex;
  std::unordered_map<void*, bool> dropped;
  std::atomic<size_t> size{0};
};
Kept& kept() {
  static auto& memory = *new Kept();
  return memory;
}

[[noreturn]] void refuse(const std::string& why) { throw std::logic_error("sim: " + why); }

}  // namespace

bool Graph::keeps(void* at) {
  if (kept().size.load(std::memory_order_acquire) == 0) return false;
  std::lock_guard lock(kept().mutex);
  const auto found = kept().dropped.find(at);
  return found != kept().dropped.end() && (found->second = true);
}

Graph::~Graph() {
  if (memory_.empty() || Runtime::forked_away()) return;
  works_.clear();
  std::vector<void*> unused;
  {
    std::lock_guard lock(kept().mutex);
    for (void* const at : memory_)
      if (kept().dropped.extract(at).mapped()) unused.push_back(at);
    kept().size = kept().dropped.size();
  }
  Runtime& runtime = Runtime::get();
  for (void* const at : unused) runtime.device(runtime.space().device_of(at)).memory().free(at);
}

void Graph::launch(std::shared_ptr<const Graph> graph, Stream& stream) {
  if (stream.capture()) refuse("a graph cannot be replayed in the capture of another");
  stream.enqueue([graph = std::move(graph)] {
    for (const Stream::Work& work : graph->works_) {
      rest();
      work();
    }
  });
}

void Capture::begin(Stream& origin) {
  if (origin.capture()) refuse("this stream captures a graph already");
  origin.set_capture(std::shared_ptr<Capture>(new Capture(origin)));
}

std::shared_ptr<const Graph> Capture::end(Stream& origin) {
  const auto capture = origin.capture();
  if (!capture || &capture->origin_ != &origin)
    refuse("the current stream is not the one on which the capture of a graph began");
  std::lock_guard lock(capture->mutex_);
  bool complete = true;
  for (const auto& [stream, unawaited] : capture->joined_) {
    complete = complete && unawaited == 0;
    stream->set_capture(nullptr);
  }
  origin.set_capture(nullptr);
  auto graph = std::exchange(capture->graph_, nullptr);
  if (!complete)
    refuse(
        "a graph has work on a side stream that its first stream does not wait for; make the "
        "first "
        "stream wait before the end of the capture");
  return graph;
}

void Capture::add(const Stream& stream, Stream::Work work) {
  std::lock_guard lock(mutex_);
  if (!graph_) refuse("the capture of a graph is over");
  graph_->works_.push_back(std::move(work));
  if (const auto found = joined_.find(const_cast<Stream*>(&stream)); found != joined_.end())
    ++found->second;
}

void Capture::add_memory(void* at) {
  std::lock_guard lock(mutex_);
  if (!graph_) return;
  graph_->memory_.push_back(at);
  std::lock_guard all(kept().mutex);
  kept().dropped.emplace(at, false);
  kept().size = kept().dropped.size();
}

RecordingPtr Capture::record(const Stream& stream) {
  std::lock_guard lock(mutex_);
  const auto found = joined_.find(const_cast<Stream*>(&stream));
  return std::make_shared<Recording>(shared_from_this(), &stream,
                                     found == joined_.end() ? 0 : found->second);
}

void Capture::wait(Stream& stream, const Recording& recording) {
  std::lock_guard lock(mutex_);
  if (!graph_) refuse("an event that was recorded in the capture of a graph is no event outside");
  const auto capture = stream.capture();
  if (capture && capture.get() != this) refuse("a stream cannot take part in two captures");
  if (!capture) {
    joined_.emplace(&stream, 0);
    stream.set_capture(shared_from_this());
  }
  const auto awaited = joined_.find(const_cast<Stream*>(recording.stream()));
  if (awaited != joined_.end() && awaited->second == recording.work()) awaited->second = 0;
}

}  // namespace torch_sim

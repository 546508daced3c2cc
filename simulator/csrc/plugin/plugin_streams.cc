// The plugin's streams and events.
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "plugin/plugin_entry.h"
#include "runtime/event.h"
#include "runtime/runtime.h"

namespace torch_sim {
namespace {

// Streams live as long as the process, so one that is given back is the next caller's.
struct Spare {
  std::mutex mutex;
  std::set<Stream*> taken, free;
};
Spare& spare() {
  static auto& streams = *new Spare();
  return streams;
}

int stream_create(int device, hcd_stream, int priority, hcd_stream* out) {
  return guarded([&] {
    const int sims = priority > 0 ? -1 : 0;  // as torch counts: the lower, the sooner
    std::lock_guard lock(spare().mutex);
    Stream* found = nullptr;
    for (Stream* stream : spare().free)
      if (stream->device() == device && stream->priority() == sims) found = stream;
    if (!found) found = &Runtime::get().device(device).new_stream(sims);
    spare().free.erase(found);
    if (!spare().taken.insert(found).second)
      throw NotSupported("sim: device " + std::to_string(device) + " has no more streams");
    *out = reinterpret_cast<hcd_stream>(found);
    return HCD_OK;
  });
}

int stream_destroy(int device, hcd_stream stream) {
  return guarded([&] {
    std::lock_guard lock(spare().mutex);
    auto node = spare().taken.extract(stream_of(device, stream));
    if (!node) throw std::invalid_argument("sim: this stream was not made by stream_create");
    spare().free.insert(std::move(node));
    return HCD_OK;
  });
}

// An event is one recording, which whoever waits for it shares.
RecordingPtr& recording_of(hcd_event event) { return *reinterpret_cast<RecordingPtr*>(event); }

int event_record(int device, hcd_stream stream, hcd_event* out) {
  return guarded([&] {
    RecordingPtr recording;
    if (Stream* found = stream_of(device, stream)) {
      recording = record_on(*found);
    } else {
      Runtime::get().device(device);
      recording = std::make_shared<Recording>();
      recording->complete();
    }
    *out = reinterpret_cast<hcd_event>(new RecordingPtr(std::move(recording)));
    return HCD_OK;
  });
}

int stream_wait_event(int device, hcd_stream stream, hcd_event event) {
  return guarded([&] {
    if (Stream* found = stream_of(device, stream))
      make_wait(*found, recording_of(event));
    else
      recording_of(event)->wait();
    return HCD_OK;
  });
}

int event_query(int, hcd_event event) {
  return recording_of(event)->ready() ? HCD_OK : HCD_NOT_READY;
}

int event_sync(int, hcd_event event) {
  return guarded([&] { return recording_of(event)->wait(), HCD_OK; });
}

int event_destroy(int, hcd_event event) {
  delete &recording_of(event);
  return HCD_OK;
}

}  // namespace

void add_streams_and_events(hcd_api& api) {
  api.stream_create = stream_create;
  api.stream_destroy = stream_destroy;
  api.event_record = event_record;
  api.stream_wait_event = stream_wait_event;
  api.event_query = event_query;
  api.event_sync = event_sync;
  api.event_destroy = event_destroy;
}

}  // namespace torch_sim

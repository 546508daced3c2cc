// The plugin's own streams and events.
#include "device/device.h"

namespace hccl_like {

Result<DeviceStream> Device::make_stream(int index, hcd_stream like, int priority) const {
  constexpr Attempt kAttempt{"make a stream", "stream_create"};
  if (!can_make_streams()) return unsupported(index, kAttempt);
  hcd_stream made = 0;
  if (auto error = check(api_.stream_create(index, like, priority, &made), index, kAttempt))
    return *error;
  return DeviceStream(*this, api_.stream_destroy, {"end a stream", "stream_destroy"}, index, made);
}

Result<DeviceEvent> Device::record(int index, hcd_stream stream) const {
  constexpr Attempt kAttempt{"record an event", "event_record"};
  if (!can_record_events()) return unsupported(index, kAttempt);
  hcd_event made = 0;
  if (auto error = check(api_.event_record(index, stream, &made), index, kAttempt)) return *error;
  return DeviceEvent(*this, api_.event_destroy, {"end an event", "event_destroy"}, index, made);
}

std::optional<Error> Device::wait_for_event(int index, hcd_stream stream,
                                            const DeviceEvent& event) const {
  return check(api_.stream_wait_event(index, stream, event.get()), index,
               {"let a stream wait for an event", "stream_wait_event"});
}

Result<bool> Device::passed(int index, const DeviceEvent& event) const {
  const int status = api_.event_query(index, event.get());
  if (status == HCD_NOT_READY) return false;
  if (auto error = check(status, index, {"look at an event", "event_query"})) return *error;
  return true;
}

std::optional<Error> Device::synchronize(int index, const DeviceEvent& event) const {
  return check(api_.event_sync(index, event.get()), index, {"wait for an event", "event_sync"});
}

}  // namespace hccl_like

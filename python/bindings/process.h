#pragma once
// Where the parts are put together: the one place that remembers what this process has.
#include <memory>
#include <mutex>

#include "process_group/devices.h"
#include "process_group/flight_recorder.h"
#include "process_group/session.h"
#include "transport/transports.h"

namespace hccl_like {

struct Process {
  Devices devices;
  FlightRecorder recorder;
  std::mutex mutex;                // guards what follows
  std::weak_ptr<Session> session;  // of the groups that are open
  ModulePaths transports;          // that packages brought along
};

// Never destroyed: streams and plugins live to the end of the process.
Process& process();
// The session to make a group in. Not with the GIL held.
std::shared_ptr<Session> join_session();
// The session if any group is open, else null.
std::shared_ptr<Session> current_session();
// For the interpreter's end: closes every group that is still open, while threads can still be joined.
void close_all_groups();

}  // namespace hccl_like

#pragma once
// Where the parts are put together: the one place that remembers what this process has.
#include <memory>
#include <mutex>
#include <string>

#include "process_group/device/devices.h"
#include "process_group/diagnosis/flight_recorder.h"
#include "process_group/issue/session.h"
#include "transport/mesh/transports.h"

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
// For the interpreter's end: closes every group that is still open, while threads can still be
// joined. `reason`: what has ended the program too early, or nothing. If a call has failed of which
// nobody was told, the program is told by a line on standard error and by its exit code.
void close_all_groups(const std::string& reason);
// Throws what torch throws if a call that is over has failed and nobody was told so. Not with the
// GIL held.
void tell_untold_failure();

}  // namespace hccl_like

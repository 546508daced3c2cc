#pragma once
// The process's singletons: devices, recorder, session and transports.
#include <memory>
#include <mutex>
#include <string>

#include "process_group/device/devices.h"
#include "process_group/diagnosis/flight_recorder.h"
#include "process_group/issue/session.h"
#include "process_group/suspension/suspension.h"
#include "transport/mesh/transports.h"

namespace hccl_like {

struct Process {
  Devices devices;
  FlightRecorder recorder;
  std::mutex mutex;                // guards the members below
  std::weak_ptr<Session> session;  // of the open groups
  ModulePaths transports;          // registered by packages
  Suspension suspension;
};

// Never destroyed: streams and plugins live until the process ends.
Process& process();
// The session for a new group. Not with the GIL held.
std::shared_ptr<Session> join_session();
// The session, or null if no group is open.
std::shared_ptr<Session> current_session();
// At the interpreter's exit: closes all open groups while threads can still be joined. `reason`:
// cause of an early end, or empty. After an unreported failure of a call, writes a line to standard
// error and makes the exit code nonzero.
void close_all_groups(const std::string& reason);
// Throws the torch error of a failed call if the program does not know of it. Not with the GIL
// held.
void tell_untold_failure();

}  // namespace hccl_like

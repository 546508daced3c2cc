#pragma once

namespace torch_sim {

// Calls of the runtime that wait until all streams of all devices are idle (Flaw::kIdleCalls).

// By every other call of the plugin: waits for such a call of another thread.
void await_idle_calls();

// Such a call. Waits for the streams.
void idle_call();

}  // namespace torch_sim

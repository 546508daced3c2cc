#pragma once

namespace torch_sim {

// Features that the device can lack or implement wrongly, each as some real device does.
// TORCH_SIM_FLAWS names them, separated by commas. They serve to test tools and libraries on
// imperfect devices.
enum class Flaw {
  kNoEvents,          // recording an event throws
  kNoStreams,         // whoever asks for a stream gets the default one
  kNoNativeHandles,   // streams have none
  kNoPinnedMemory,    // there is no pinned host memory
  kNoResize,          // storages cannot be resized
  kBlockingCopies,    // every copy holds up the caller until it is done
  kBusyStreams,       // a stream never says that it is idle
  kIdleStreams,       // a stream always says that it is idle
  kHastyEvents,       // a stream that shall wait for an event goes on at once
  kReusedEvents,      // who waits for an event waits for the latest recording of it
  kHastyReads,        // a copy to the host does not wait for its stream
  kForgetfulStreams,  // record_stream does nothing
  kNoOffsets,         // a copy between host and device begins where the storage does
  kHangingFork,       // a forked child that uses the device hangs
  kCrashingThreads,   // a thread other than the first crashes when it uses the device
  kBlockCopies,  // to copy a part of a storage from or to the host takes as long as to copy all of
                 // it
  kNoHooks,  // torch is given no hooks (PrivateUse1HooksInterface); to be set before the library is
             // loaded
  kNoOperators,   // there are none but those that make, view and copy tensors
  kNoGenerators,  // there is no generator but the default one
  kNoIndices,     // a tensor that is made without an index of the device has none
  kSlowQueries,   // to ask an event takes 20 ms; the process ends if the event is destroyed
                  // meanwhile
  kIdleCalls,     // to allocate pinned memory waits until all streams are idle, and other calls of
                  // the plugin wait meanwhile
  kCount,
};

bool has(Flaw flaw);

// The same while the library is loaded, when the answers that has() keeps are not to be fixed yet:
// a process that was forked later may set its own. A wrong setting counts as none.
bool has_at_load(Flaw flaw);

// Throws std::invalid_argument if TORCH_SIM_FLAWS names something unknown.
void check_flaws();

}  // namespace torch_sim

#pragma once
// What profilers learn of a call besides its event: torch's "record_param_comms", which Kineto, the
// execution trace and tools on top of them read.
#include <string>

#include <c10/util/FunctionRef.h>

#include "process_group/calls/calls.h"
#include "process_group/calls/group_view.h"

namespace hccl_like {

// Whether anybody listens on this thread. Costs a few nanoseconds; without a listener nothing else
// is done.
bool profiled();

// The name of a call after "hccl-like:", as titles have it.
std::string operation_name(const Issue& issue);
bool is_message(const Issue& issue);
// The rank that a rooted collective or a message is about, else `otherwise`.
int root_of(const Issue& issue, int otherwise);

// Runs `make_call` inside of a record that describes `issue`. For when profiled().
void record_call(const GroupView& group, const Issue& issue, c10::function_ref<void()> make_call);
// The same for a wait for call `number`.
void record_wait(const GroupView& group, const CallNumber& number, c10::function_ref<void()> wait);

}  // namespace hccl_like

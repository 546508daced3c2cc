#pragma once
// Emits torch's "record_param_comms" record for Kineto and the execution trace.
#include <string>

#include <c10/util/FunctionRef.h>

#include "process_group/calls/calls.h"
#include "process_group/calls/group_view.h"

namespace hccl_like {

// True if this thread has a listener. A few nanoseconds.
bool profiled();

// The call title without "hccl-like:".
std::string operation_name(const Issue& issue);
bool is_message(const Issue& issue);
// Root of a rooted collective or peer of a message, else `otherwise`.
int root_of(const Issue& issue, int otherwise);

// Runs `make_call` inside a record of `issue`. Requires profiled().
void record_call(const GroupView& group, const Issue& issue, c10::function_ref<void()> make_call);
void record_wait(const GroupView& group, const CallNumber& number, c10::function_ref<void()> wait);

}  // namespace hccl_like

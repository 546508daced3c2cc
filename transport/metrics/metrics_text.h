#pragma once
// The counters of a process in Prometheus's text format.
#include <string>

#include "core/counters/counter_layout.h"

namespace hccl_like {

// Version 0.0.4 of the format. `now_ns`: CLOCK_MONOTONIC, for the age of running calls.
std::string metrics_text(const counter_layout::File& counters, uint64_t now_ns);

}  // namespace hccl_like

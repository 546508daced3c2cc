#pragma once
// How a call is written down for torch's flight recorder analyser.
#include "process_group/diagnosis/flight_recorder.h"

namespace hccl_like {

// Fills in name, inputs and outputs. The analyser compares these between ranks by rules of its own,
// one for each name; what does not follow them, such as parts of different sizes, is written down
// in terms of what all ranks know.
void describe(const Issue& issue, int ranks, FlightEntry& entry);

}  // namespace hccl_like

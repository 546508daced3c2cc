#pragma once
// Tensor shapes of a call for torch's flight recorder analyser.
#include "process_group/diagnosis/flight_recorder.h"

namespace hccl_like {

// Sets title, inputs and outputs. The analyser compares them between ranks by per-name rules;
// uneven parts are recorded in terms that all ranks know.
void describe(const Issue& issue, int ranks, FlightEntry& entry);

}  // namespace hccl_like

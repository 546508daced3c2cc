#pragma once
// Copies and reductions of one block of a large call. Never waits; block_pipeline.h orders them.
#include "collectives/same_host/block_plan.h"

namespace hccl_like {

// Copies this rank's input of a block into its staging slot.
void stage_block(const BlockPlan& plan, uint32_t number);
// Collectives that only copy: moves this rank's part of the data between peers and itself.
void copy_block(const BlockPlan& plan, uint32_t number);
// Collectives that reduce: reduces this rank's share of a block into its destinations.
void reduce_block(const BlockPlan& plan, uint32_t number);
// Copies the shares of the result from the other ranks' staging slots.
void fetch_block(const BlockPlan& plan, uint32_t number);
// Collectives that only copy: copies what this rank gives to itself.
void copy_own(const BlockPlan& plan, Span range);

}  // namespace hccl_like

#pragma once
// What a rank copies and reduces of one block of a large call, given the plan. Nothing waits here:
// block_pipeline.h has the order.
#include "collectives/same_host/block_plan.h"

namespace hccl_like {

// Copies this rank's input of a block into its slot.
void stage_block(const BlockPlan& plan, uint32_t number);
// Of collectives that only copy: moves what this rank moves between the others and itself.
void copy_block(const BlockPlan& plan, uint32_t number);
// Of collectives that reduce: reduces this rank's share of a block, to where it is wanted.
void reduce_block(const BlockPlan& plan, uint32_t number);
// Copies the shares of a result that the other ranks keep in their slots.
void fetch_block(const BlockPlan& plan, uint32_t number);
// Of collectives that only copy: what this rank gives to itself.
void copy_own(const BlockPlan& plan, Span range);

}  // namespace hccl_like

#pragma once
// Algorithms of users in process groups: made when a group that asks for them is made, and the same
// on all ranks.
#include <functional>
#include <string>
#include <vector>

#include "core/settings/config_values.h"
#include "process_group/issue/communicators.h"

namespace hccl_like {

// The JSON form of a user's algorithm for this layout, the host of each rank; empty if nobody knows
// an algorithm of that name. Throws what the user's code throws. Called without the GIL.
using MakeOwnAlgorithm = std::function<std::string(
    const std::string& collective, const std::string& name, const std::vector<int>& layout)>;

// For all groups of the process. Before the first group.
void set_own_algorithm_maker(MakeOwnAlgorithm make);

// Makes, proves and adds the algorithms that `forced` names and that are none of ours; nothing if
// there are none. Then all ranks compare theirs, in one call: a rank whose algorithm cannot be used
// or is another is an error on every rank. Names that no rank knows are left to the first call.
void add_own_algorithms(const Communicators& communicators, const ForcedAlgorithms& forced);

}  // namespace hccl_like

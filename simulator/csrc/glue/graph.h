#pragma once

namespace torch_sim {

// Gives torch.accelerator.Graph to the device under its present name. Once.
void register_graphs();

}  // namespace torch_sim

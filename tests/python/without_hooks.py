"""A rank on a device that has given torch no hooks, without a plugin: it meets the others, before and after a call on the device."""

import torch
import torch.distributed as dist

from hccl_like import _local_ranks, _plugins

_plugins.register = lambda extension: None
rank, ranks = _local_ranks.join()
dist.barrier()
tensor = torch.full((5,), rank + 1.0).to("sim")
dist.all_reduce(tensor)
dist.barrier()
dist.barrier(device_ids=[0])
work = dist.barrier(async_op=True)
work.wait()
dist.monitored_barrier()
print(f"met {rank} {tensor.cpu().tolist()}\n", end="", flush=True)  # in one write, beside the other rank's
dist.destroy_process_group()

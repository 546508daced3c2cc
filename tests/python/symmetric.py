"""What the tests of symmetric memory share."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

QUEUED_MS = 200
AT_ONCE = 0.1


def world():
    return dist.group.WORLD.group_name


def shared(sizes, dtype=torch.float32, *, device, fill=None, group=None):
    """A symmetric tensor and its handle."""
    tensor = symm_mem.empty(sizes, dtype=dtype, device=device)
    if fill is not None:
        tensor.copy_(fill) if isinstance(fill, torch.Tensor) else tensor.fill_(fill)
    return tensor, symm_mem.rendezvous(tensor, group or world())


def settle(device):
    if device != "cpu":
        torch.sim.synchronize()


def delay(device):
    """Work queued in front of what follows, where there is a queue."""
    if device != "cpu":
        torch.sim._sleep(QUEUED_MS)

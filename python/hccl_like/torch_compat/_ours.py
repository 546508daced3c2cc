"""What a patch asks before it acts: whose group is it, whose device?"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

# torch 2.13 renamed both functions.
ALL_GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
REDUCE_SCATTER = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"


def backends(group: dist.ProcessGroup | None) -> dict[str, dist.distributed_c10d.Backend]:
    """By type of device, the backends of a group (None: the default one) that are this package's.

    Empty also for what is no group, and where none was made yet.
    """
    extension = sys.modules.get("hccl_like._C")  # not loaded: no group of ours exists
    if extension is None or not isinstance(group or dist.group.WORLD, dist.ProcessGroup):
        return {}
    kind = extension.ProcessGroupHcclLike
    return {device: backend for device, backend in all_backends(group).items() if isinstance(backend, kind)}


def all_backends(group: dist.ProcessGroup | None) -> dict[str, dist.distributed_c10d.Backend]:
    """By type of device, every backend of a group; those of torch's detailed debug mode are looked through."""
    group = group or dist.group.WORLD
    return {device.type: unwrapped(group._get_backend(device)) for device in group._device_types}


def unwrapped(backend):
    """The backend itself, where TORCH_DISTRIBUTED_DEBUG=DETAIL put a wrapper around it."""
    wrapper = getattr(dist.distributed_c10d, "_ProcessGroupWrapper", None)
    while wrapper is not None and isinstance(backend, wrapper):
        backend = backend.wrapped_pg
    return backend


def accelerator() -> str | None:
    """The PrivateUse1 accelerator of this process; None if there is none, or CUDA beside it."""
    from hccl_like import _accelerator
    from hccl_like._registration import accelerator_name

    name = accelerator_name()
    if name is None or torch.cuda.is_available() or not _accelerator.is_available():
        return None
    return name if _accelerator.named() == name else None

"""torch.distributed._dist2, which has a registry of its own."""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist

from hccl_like import _registration

_groups = itertools.count()


def register(module) -> None:
    if _registration.NAME not in module._BACKENDS:
        module.register_backend(_registration.NAME, new_group)


def new_group(store, rank, world_size, timeout, device, **options) -> dist.ProcessGroup:
    """What `_dist2.new_group("hccl-like", timeout, device, **options)` makes: a group for `device` and for CPU tensors.

    Options are the attributes of :class:`hccl_like.Options`. All ranks must make their groups in the same order, since
    torch gives each the same store and no name.
    """
    from hccl_like import _extension

    settings = _extension.load().Options()
    for name, value in options.items():
        if not hasattr(settings, name):
            raise KeyError(f"hccl_like.Options has no attribute {name}")
        setattr(settings, name, value)
    name = f"dist2:{next(_groups)}"
    backend = _registration.make_backend(
        dist.PrefixStore(f"{name}/", store), rank, world_size, settings, timeout, name, list(range(world_size))
    )
    backend._set_sequence_number_for_group()
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group = dist.ProcessGroup(store, rank, world_size)
    group._set_default_backend(custom)
    for kind in dict.fromkeys((device.type, "cpu")):
        group._register_backend(torch.device(kind), custom, backend)
    return group

"""Functions of torch.distributed that know the names of torch's own backends only."""

from __future__ import annotations

import functools
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

from hccl_like.torch_compat import _ours


def monitored_barrier(c10d) -> None:
    """Asks the backend of a group that has ours, instead of refusing every name but gloo."""
    original = c10d.monitored_barrier

    @functools.wraps(original)
    def monitored_barrier(group=dist.GroupMember.WORLD, timeout=None, wait_all_ranks=False):
        mine = _ours.backends(group)
        if not mine:
            return original(group, timeout, wait_all_ranks)
        if timeout is None:
            timeout = c10d._get_default_timeout(c10d.get_backend(group))
        elif isinstance(timeout, float):
            warnings.warn(f"monitored_barrier: write timeout=timedelta(seconds={timeout}) instead of a float", stacklevel=2)
            timeout = timedelta(seconds=timeout)
        c10d._check_valid_timeout(timeout)
        group = group or dist.group.WORLD
        # A group without CPU tensors has nobody that torch would ask.
        asked = group if any(device.type == "cpu" for device in group._device_types) else next(iter(mine.values()))
        return asked.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    c10d.monitored_barrier = dist.monitored_barrier = monitored_barrier


def group_timeout(c10d) -> None:
    """_set_pg_timeout reaches every backend of a group that has ours, also behind torch's debug mode."""
    original = c10d._set_pg_timeout

    @functools.wraps(original)
    def _set_pg_timeout(timeout, group=None):
        if not _ours.backends(group):
            return original(timeout, group)
        for backend in _ours.all_backends(group).values():
            backend._set_default_timeout(timeout)

    c10d._set_pg_timeout = _set_pg_timeout


def all_gather_gradient(functional) -> None:
    """The gradient of torch.distributed.nn's all-gathers is one reduce-scatter, as it is with NCCL."""
    base_backward, list_backward = functional._AllGatherBase.backward, functional._AllGather.backward

    @functools.wraps(base_backward)
    def backward_of_base(ctx, grad_output):
        if grad_output.device.type not in _ours.backends(ctx.group):
            return base_backward(ctx, grad_output)
        ranks = dist.get_world_size(ctx.group)
        rows = grad_output.size(0)
        if rows % ranks:
            raise RuntimeError(f"the first dimension of the gradient is {rows}, which {ranks} ranks cannot share evenly")
        gradient = grad_output.new_empty((rows // ranks, *grad_output.shape[1:]))
        getattr(dist, _ours.REDUCE_SCATTER)(gradient, grad_output.contiguous(), dist.ReduceOp.SUM, ctx.group)
        return None, gradient, None

    @functools.wraps(list_backward)
    def backward_of_list(ctx, *grad_outputs):
        if grad_outputs[0].device.type not in _ours.backends(ctx.group):
            return list_backward(ctx, *grad_outputs)
        own = torch.empty_like(grad_outputs[dist.get_rank(ctx.group)])
        return None, functional._Reduce_Scatter.apply(dist.ReduceOp.SUM, ctx.group, own, *grad_outputs)

    functional._AllGatherBase.backward = staticmethod(backward_of_base)
    functional._AllGather.backward = staticmethod(backward_of_list)

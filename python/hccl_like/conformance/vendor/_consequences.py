"""What works on a device, given what its checks found."""

from __future__ import annotations

from collections.abc import Sequence

from hccl_like.conformance.vendor._check import YES, Row

_COLLECTIVES = ("device.tensors", "order.read", "copies.views", "threads.two")
_TRAINING = (*_COLLECTIVES, "torch.autograd")
_ASYNCHRONOUS = ("hooks.pinned", "copies.to_host", "copies.to_device", "copies.non_blocking", "memory.freed_source")
_SHARDED = (*_TRAINING, "module.streams", "streams.switch", "events.wait", "hooks.resize")

NEEDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("collectives, large ones copied beside the network", _COLLECTIVES),
    ("copies that run behind the program", _ASYNCHRONOUS),
    ("calls in stream order, without waiting on the host",
     ("backend.plugin", "streams.switch", "events.wait", "events.synchronize")),
    ("DistributedDataParallel, tensor parallelism", _TRAINING),
    ("DistributedDataParallel(find_unused_parameters=True)", (*_TRAINING, "hooks.pinned")),
    ("FSDP1, FSDP2", _SHARDED),
    ("activation checkpoints", ("torch.autograd", "torch.checkpoint")),
    ("mixed precision", ("torch.autocast", "module.amp")),
    ("distributed checkpoints", _COLLECTIVES),
    ("distributed checkpoints that are saved asynchronously", (*_COLLECTIVES, "torch.storage")),
)  # fmt: skip


def of(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """(what, the checks it lacks) for everything whose checks were run."""
    found = {row.id: row.state for row in rows}
    return [(what, [id for id in needs if found[id] != YES]) for what, needs in NEEDS if all(id in found for id in needs)]

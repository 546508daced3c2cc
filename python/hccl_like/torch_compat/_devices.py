"""Places that take every accelerator for CUDA."""

from __future__ import annotations

import functools
import warnings

import torch

from hccl_like._registration import accelerator_name
from hccl_like.torch_compat import _ours


def grad_scaler(module) -> None:
    """ShardedGradScaler() scales on the accelerator there is, instead of switching itself off for want of CUDA."""
    scaler = module.ShardedGradScaler
    original = scaler.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        if not args and "device" not in kwargs and _ours.accelerator() in _ours.backends(kwargs.get("process_group")):
            kwargs["device"] = _ours.accelerator()
        original(self, *args, **kwargs)

    scaler.__init__ = __init__


def rng_sync(module) -> None:
    """Generators of the accelerator are compared by the hash of their state, whatever it consists of."""
    original = module._check_rng_sync_internal

    @functools.wraps(original)
    def _check_rng_sync_internal(generator, group):
        if generator.device.type == _ours.accelerator() and _ours.backends(group):
            return module._check_cpu_rng_sync(generator, group)
        return original(generator, group)

    module._check_rng_sync_internal = _check_rng_sync_internal


def shared_pinning(module) -> None:
    """Shared memory that is to be pinned too stays unpinned, which is slower to copy to and nothing else.

    Only CUDA's runtime can pin memory that exists already; PrivateUse1's interface allocates pinned memory, which is not
    shared.
    """
    pin, unpin = module.pin_memory, module.unpin_memory

    @functools.wraps(pin)
    def pin_memory(data_ptr, size):
        if (name := _ours.accelerator()) is None:
            return pin(data_ptr, size)
        _warn_once(name)

    @functools.wraps(unpin)
    def unpin_memory(data_ptr):
        if _ours.accelerator() is None:
            unpin(data_ptr)

    module.pin_memory, module.unpin_memory = pin_memory, unpin_memory


@functools.cache
def _warn_once(name: str) -> None:
    warnings.warn(
        f"{name} cannot pin memory that is shared between processes: the copy is shared and not pinned. "
        "pin_memory=False says the same without this warning",
        stacklevel=4,
    )


def checkpoint_copies(module) -> None:
    """A checkpoint of a device without streams in Python, or without pinned memory, is copied to the host tensor by tensor."""
    original = module._OverlappingCpuLoader

    @functools.wraps(original, updated=())
    def _OverlappingCpuLoader(resolve_fun, stream=None, *arguments, **named):
        if stream is None and not torch.cuda.is_available() and not _copies_on_a_stream():
            return module._SerialCpuLoader(resolve_fun)
        return original(resolve_fun, stream, *arguments, **named)

    module._OverlappingCpuLoader = _OverlappingCpuLoader


def _copies_on_a_stream() -> bool:
    """Whether the accelerator's module can do what the overlapping loader asks of it; a device may refuse with any error."""
    try:
        device = getattr(torch, accelerator_name())
        with device.stream(device.current_stream()):
            return torch.empty(1, pin_memory=True).is_pinned()
    except Exception:
        return False

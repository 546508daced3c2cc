"""Places that take every accelerator for CUDA."""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref

import torch
import torch.distributed as dist

from hccl_like import _accelerator
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

    write = module._write_files_from_queue
    signature = inspect.signature(write)

    @functools.wraps(write)
    def _write_files_from_queue(*arguments, **named):
        call = signature.bind(*arguments, **named)
        if _module_lacks("is_available"):
            # The module is not asked by one of several threads, each of which copies tensor by tensor.
            call.arguments["thread_count"] = max(2, call.arguments["thread_count"])
        return write(*call.args, **call.kwargs)

    module._OverlappingCpuLoader = _OverlappingCpuLoader
    module._write_files_from_queue = _write_files_from_queue


def device_handle(module) -> None:
    """A mesh leaves the choice of the device alone where the device's module cannot be asked about it."""
    original = module._get_device_handle

    @functools.wraps(original)
    def _get_device_handle(device_type="cuda"):
        handle = original(device_type)
        return _Initialized(handle) if device_type == accelerator_name() and _module_lacks("is_initialized") else handle

    module._get_device_handle = _get_device_handle


class _Initialized:
    """A device's module that says of itself that it is initialised and, if it cannot, how many devices there are; otherwise as
    it is."""

    def __init__(self, module):
        self._module = module

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return _accelerator.device_count()

    def __getattr__(self, name):
        return getattr(self._module, name)


def fake_device(module) -> None:
    """Fake tensors, by which DTensor finds out shapes, are of the current device where the module does not say whether it is
    initialised."""
    # Since torch 2.15 a function of the module, which others call besides.
    owner, name = (module, "_pin_device_index") if hasattr(module, "_pin_device_index") else (module.FakeTensor, "_normalize_fake_device")
    original = getattr(owner, name)

    @functools.wraps(original)
    def normalized(device):
        ours = device.type == accelerator_name() and device.index is None
        if not ours or not _module_lacks("is_initialized"):
            return original(device)
        current = getattr(getattr(torch, device.type), "current_device", lambda: 0)
        return torch.device(device.type, current())

    setattr(owner, name, normalized if owner is module else staticmethod(normalized))


def barrier(c10d) -> None:
    """A group of ours meets also where the device has not told torch that it is available.

    Nor is torch asked for the device of a barrier without arguments each time, which takes longer than the barrier.
    """
    original = c10d.barrier
    signature = inspect.signature(original)
    # By group: the options of a barrier without arguments, None if torch makes it.
    plain: weakref.WeakKeyDictionary[dist.ProcessGroup, object] = weakref.WeakKeyDictionary()

    @functools.wraps(original)
    def barrier(group=None, *rest, **named):
        everybody = group or c10d.GroupMember.WORLD
        if not rest and not named and isinstance(everybody, dist.ProcessGroup):
            if (options := plain.get(everybody, plain)) is plain:
                options = plain[everybody] = _plain_barrier(c10d, everybody)
            if options is not None:
                if (work := everybody.barrier(opts=options)) is not None:
                    work.wait()
                return None
        if _tells_accelerator():  # nearly always; what follows would take longer than the call
            return original(group, *rest, **named)
        call = signature.bind(group, *rest, **named)
        call.apply_defaults()
        ids = call.arguments["device_ids"]
        mine = _ours.backends(group)
        if not mine:
            return original(group, *rest, **named)
        options = c10d.BarrierOptions()
        options.asyncOp = call.arguments["async_op"]
        if call.arguments.get("timeout") is not None:
            options.timeout = call.arguments["timeout"]
        name = accelerator_name()
        options.device = torch.device("cpu" if name not in mine else name if not ids else f"{name}:{ids[0]}")
        work = everybody.barrier(opts=options)
        if options.asyncOp or work is None:
            return work
        work.wait()
        return None

    c10d.barrier = dist.barrier = barrier


def _plain_barrier(c10d, group):
    """The options that torch would find for a group of ours that serves CPU tensors; None for another one."""
    if "cpu" not in _ours.backends(group) or not _tells_accelerator():
        return None
    options = c10d.BarrierOptions()
    options.asyncOp = False
    options.device = group.bound_device_id or torch.device("cpu")
    return options


def _tells_accelerator() -> bool:
    """Whether torch can name the accelerator: a PrivateUse1 device must have registered hooks that say whether it is available."""
    try:
        torch._C._get_accelerator()
    except RuntimeError:  # NotImplementedError from hooks without isAvailable(), another one without hooks
        return False
    return True


def _module_lacks(function: str) -> bool:
    """Whether torch has a module for the PrivateUse1 accelerator, without this function in it."""
    module = getattr(torch, accelerator_name() or "", None)
    return module is not None and not hasattr(module, function)


def _copies_on_a_stream() -> bool:
    """Whether the accelerator's module can do what the overlapping loader asks of it; a device may refuse with any error."""
    try:
        device = getattr(torch, accelerator_name() or "")
        with device.stream(device.current_stream()):
            return torch.empty(1, pin_memory=True).is_pinned()
    except Exception:
        return False

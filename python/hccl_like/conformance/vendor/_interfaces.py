"""What torch can reach: the device, its module, its hooks."""

from __future__ import annotations

import importlib.metadata

import torch

from hccl_like.conformance.vendor._check import Missing, check, expect, offered
from hccl_like.conformance.vendor._device import COUNT, STEP, Device, expect_value

_NEEDS_A_NAME = "give the device its name with torch.utils.rename_privateuse1_backend and register its module"


@check("device.tensors", "tensors can be made and read", without="nothing works without it")
def tensors(device: Device) -> None:
    with offered():
        there = torch.arange(COUNT, dtype=torch.float32).to(device.first)
    back = there.cpu()
    expect(torch.equal(back, torch.arange(COUNT, dtype=torch.float32)), "what was copied there and back has changed")


@check(
    "order.read",
    "a copy to the host sees the work queued before it",
    without="no result can be trusted: a blocking copy must wait for the current stream",
)
def read_after_work(device: Device) -> str | None:
    device.prepare(5)
    tensor = device.full(0)
    device.settle()
    behind = device.busy()
    device.fill(tensor, 5)
    expect_value(tensor.cpu(), 5, "read right after it was queued")
    return None if behind else STEP


@check("device.name", "PrivateUse1 goes by the device's name", without=_NEEDS_A_NAME)
def name(device: Device) -> None:
    known = torch._C._get_privateuse1_backend_name()
    if known != device.name:
        raise Missing(f"this process' PrivateUse1 device is '{known}'")


@check("device.count", "several devices", gives="a rank for each device", without="all ranks of a host share the one device")
def count(device: Device) -> str:
    with offered():
        device.second()
    return f"{device.count()} devices"


@check(
    "device.switch",
    "the current device can be switched",
    needs=("device.count",),
    without="a process can use its first device only; start ranks that see one device each",
)
def switch(device: Device) -> None:
    with offered():
        torch.accelerator.set_device_index(1)
    expect(torch.accelerator.current_device_index() == 1, "after switching to device 1 the current one is another")
    made = torch.empty(3, device=device.name)
    expect(made.device.index in (1, None), f"a tensor made after switching to device 1 is on {made.device}")
    with torch.accelerator.device_index(0):
        expect(torch.accelerator.current_device_index() == 0, "a device context does not switch")
    expect(torch.accelerator.current_device_index() == 1, "a device context does not switch back")


def _names(id: str, what: str, names: str, without: str) -> None:
    @check(f"module.{id}", f"torch.<device> has the names for {what}", without=without)
    def has_names(device: Device) -> None:
        missing = [name for name in names.split() if not hasattr(device.module, name)]
        if missing:
            raise Missing("missing: " + ", ".join(missing))


_names("basic", "torch's own use", "is_available device_count current_device set_device synchronize _is_in_bad_fork manual_seed_all",
       "torch.manual_seed and torch.accelerator work in part only")  # fmt: skip
_names("streams", "FSDP and pipelines", "Stream Event current_stream stream device synchronize",
       "FSDP1, FSDP2, pipelines and, without `device`, torch.load() fail in torch itself; "
       "DDP, tensor parallelism and distributed checkpoints don't need these")  # fmt: skip
_names("random", "its random state", "get_rng_state set_rng_state",
       "torch.<device> cannot save and restore its random state; torch.checkpoint below tells whether torch's own uses can")  # fmt: skip
_names("memory", "memory statistics", "memory_allocated memory_reserved memory_stats empty_cache",
       "FSDP's and the profiler's memory figures are missing")  # fmt: skip
_names("amp", "mixed precision", "get_amp_supported_dtype", "torch.autocast refuses the device")


@check(
    "hooks.pinned",
    "pinned host memory",
    gives="copies to and from it are fast, and can run behind the program",
    without="calls are staged through ordinary memory, whose copies may block the host; "
    "DistributedDataParallel(find_unused_parameters=True) fails in torch itself",
)
def pinned(device: Device) -> None:
    with offered():
        memory = torch.empty(COUNT, pin_memory=True)
    expect(memory.fill_(3).sum().item() == 3 * COUNT, "pinned memory does not hold what was written")
    expect_value(memory.to(device.first).cpu(), 3, "a copy from pinned memory")


@check(
    "hooks.is_pinned",
    "pinned memory is known as such",
    needs=("hooks.pinned",),
    without="torch's DataLoader and non-blocking copies treat pinned memory as ordinary memory",
)
def is_pinned(device: Device) -> None:
    memory = torch.empty(COUNT).pin_memory()
    expect(memory.is_pinned(), "is_pinned() is false for what pin_memory() made")
    expect(memory[5:].is_pinned(), "is_pinned() is false for a part of it")
    expect(not torch.empty(COUNT).is_pinned(), "is_pinned() is true for ordinary memory")


@check(
    "hooks.resize",
    "a storage can be resized (resizePrivateUse1Bytes)",
    without="FSDP1 and FSDP2 fail in torch itself, which frees and restores parameters by this",
)
def resize(device: Device) -> None:
    tensor = device.full(1)
    with offered():
        tensor.untyped_storage().resize_(0)
    expect(tensor.untyped_storage().nbytes() == 0, "a storage resized to nothing has bytes left")
    tensor.untyped_storage().resize_(4 * COUNT)
    tensor.copy_(torch.full((COUNT,), 2.0))
    expect_value(tensor.cpu(), 2, "a tensor whose storage was resized")


@check("hooks.generator", "random numbers with a generator of one's own", without="random operators take no generator there")
def generator(device: Device) -> None:
    with offered():
        made = torch.Generator(device=device.first)
        draw = torch.empty(COUNT, device=device.first)
        first = draw.normal_(generator=made.manual_seed(7)).cpu()
    again = draw.normal_(generator=made.manual_seed(7)).cpu()
    expect(torch.equal(first, again), "the same seed gave other numbers")
    state = made.get_state()
    onwards = draw.normal_(generator=made).cpu()
    made.set_state(state)
    expect(torch.equal(onwards, draw.normal_(generator=made).cpu()), "a restored state gave other numbers")


@check("backend.default", "torch.distributed has a backend for the device", without="name one: init_process_group(\"hccl-like\")")
def backend(device: Device) -> str:
    import torch.distributed as dist

    known = dist.Backend.default_device_backend_map.get(device.name)
    if known is None:
        raise Missing("none is registered; hccl-like registers itself once it is installed")
    return f"'{known}' by default"


@check(
    "backend.plugin",
    "a device plugin is installed",
    gives="memory is mapped and calls run in stream order, as far as the plugin goes",
    without="served by torch's own interfaces alone: right, but staged by copies; see docs/plugin-guide.md",
)
def plugin(device: Device) -> str:
    from hccl_like import _plugins

    packages = [entry for entry in importlib.metadata.entry_points(group=_plugins.GROUP) if entry.name == device.name]
    expect(len(packages) < 2, f"{len(packages)} plugins claim '{device.name}'")
    path = _plugins.found().get(device.name)
    if path is None and packages:
        raise Missing(f"{_plugins.SETTING} says that there is none")
    if path is None:
        raise Missing(f"no package has an entry point '{device.name}' in the group {_plugins.GROUP}")
    expect(isinstance(path, str), f"it cannot be found: {path}")
    return str(path)

"""Lets a test module that says ``cuda`` use any device of PrivateUse1.

The module gets its own ``torch`` (a proxy) in which cuda is the device; methods of tensors and modules that carry the
word in their name are replaced in the whole process, which belongs to the runner.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from hccl_like.conformance.names import Proxy

_FACTORIES = ("empty", "full", "ones", "rand", "randint", "randn", "tensor", "zeros", "arange")


def count(device: str) -> int:
    """How many devices there are. Asked in a process of its own: what opens a device must not be forked afterwards."""
    if device == "cpu":
        return 0
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            import torch

            os.write(write_end, str(getattr(torch, device).device_count()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    if not text:
        raise RuntimeError(
            f"torch has no device '{device}' here: is the package that brings it installed, and named with --import if torch "
            "does not load it by itself?"
        )
    return int(text)


def read_as(device: str, name: Any) -> Any:
    """The device that a test means by ``cuda`` or ``cuda:1``; anything else as it is."""
    if isinstance(name, str) and name.partition(":")[0] == "cuda":
        return device + name[len("cuda") :]
    return name


def torch_proxy(torch: ModuleType, device: str) -> Proxy:
    """torch with the device in place of CUDA."""

    def on_device(function):
        @functools.wraps(function)
        def call(*arguments, **keywords):
            if "device" in keywords:
                keywords["device"] = read_as(device, keywords["device"])
            return function(*arguments, **keywords)

        return call

    def make_device(kind, *index, **keywords):
        return torch.device(read_as(device, kind), *index, **keywords)

    def load(*arguments, map_location=None, **keywords):
        if isinstance(map_location, dict):
            map_location = {read_as(device, key): read_as(device, value) for key, value in map_location.items()}
        return torch.load(*arguments, map_location=map_location, **keywords)

    factories = {name: on_device(getattr(torch, name)) for name in _FACTORIES}
    return Proxy(torch, cuda=getattr(torch, device), device=make_device, load=load, **factories)


def replace_cuda_methods(device: str) -> None:
    """``Tensor.cuda``, ``Module.cuda`` and ``init_device_mesh("cuda")`` mean the device from now on."""
    import torch
    import torch.distributed.device_mesh as device_mesh

    def chosen(index) -> torch.device:
        if isinstance(index, str):
            return torch.device(read_as(device, index))
        if isinstance(index, torch.device):
            return index
        return torch.device(device) if index is None else torch.device(device, index)

    def tensor_cuda(self, device=None, non_blocking=False, memory_format=torch.preserve_format):
        return self.to(chosen(device), non_blocking=non_blocking, memory_format=memory_format)

    def module_cuda(self, device=None):
        return self.to(chosen(device))

    init_device_mesh = device_mesh.init_device_mesh

    def mesh(device_type, *arguments, **keywords):
        return init_device_mesh(read_as(device, device_type), *arguments, **keywords)

    torch.Tensor.cuda = tensor_cuda
    torch.nn.Module.cuda = module_cuda
    device_mesh.init_device_mesh = mesh

"""DeepSpeed: ``import hccl_like.integrations.deepspeed``, before or after ``import deepspeed``.

Gives DeepSpeed an accelerator object for the device, with hccl-like for its collectives, where
DeepSpeed would detect the CPU. ``DS_ACCELERATOR`` with another name goes first. What the device's
module (``torch.<its name>``) does not offer is what DeepSpeed does on the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os

import torch

from hccl_like import _accelerator, _registration
from hccl_like.integrations import _apply

# Functions of DeepSpeed's interface that are the device module's own, by name.
_OF_THE_MODULE = (
    "set_rng_state",
    "get_rng_state",
    "manual_seed",
    "manual_seed_all",
    "initial_seed",
    "empty_cache",
    "default_stream",
    "memory_allocated",
    "max_memory_allocated",
    "reset_max_memory_allocated",
    "memory_stats",
    "reset_peak_memory_stats",
    "memory_reserved",
    "max_memory_reserved",
)
_TYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
}
# Kernels for tensors on the host.
_ON_THE_HOST = (
    "CPUAdamBuilder",
    "CPUAdagradBuilder",
    "CPULionBuilder",
    "AsyncIOBuilder",
    "PinMemoryBuilder",
)


def _accelerator_class(base, name: str):
    device_module = getattr(torch, name, None)

    class Accelerator(base):
        """The accelerator that torch knows and DeepSpeed does not."""

        def __init__(self):
            super().__init__()
            self._name = name
            self._communication_backend_name = _registration.NAME

        def is_synchronized_device(self):
            return not hasattr(device_module, "Stream")

        def device_name(self, device_index=None):
            return name if device_index is None else f"{name}:{device_index}"

        def device(self, device_index=None):
            return torch.device(
                name, self.current_device() if device_index is None else device_index
            )

        def set_device(self, device_index):
            torch.accelerator.set_device_index(device_index)

        def current_device(self):
            return torch.accelerator.current_device_index()

        def current_device_name(self):
            return self.device_name(self.current_device())

        def device_count(self):
            return _accelerator.device_count(name)

        def synchronize(self, device_index=None):
            torch.accelerator.synchronize(device_index)

        Stream = torch.Stream  # of the current device, as an event is
        Event = torch.Event

        def stream(self, stream):
            return stream if isinstance(stream, torch.Stream) else contextlib.nullcontext()

        def current_stream(self, device_index=None):
            return (
                None
                if self.is_synchronized_device()
                else torch.accelerator.current_stream(device_index)
            )

        def total_memory(self, device_index=None):
            ask = getattr(device_module, "mem_get_info", None)
            return ask(device_index)[1] if ask else super().total_memory(device_index)

        def available_memory(self, device_index=None):
            ask = getattr(device_module, "mem_get_info", None)
            return ask(device_index)[0] if ask else super().available_memory(device_index)

        def is_available(self):
            return _apply.accelerator() == name

        def is_bf16_supported(self):
            return _apply.computes_with(torch.bfloat16)

        def is_fp16_supported(self):
            return _apply.computes_with(torch.float16)

        def on_accelerator(self, tensor):
            return tensor.device.type == name

        def get_op_builder(self, class_name):
            if class_name in _ON_THE_HOST:
                return super().get_op_builder(class_name)
            return _no_kernels(super().get_op_builder("a name that is none"), class_name)

    for function in _OF_THE_MODULE:
        if callable(found := getattr(device_module, function, None)):
            setattr(Accelerator, function, staticmethod(found))
    for attribute, dtype in _TYPES.items():
        setattr(Accelerator, attribute, staticmethod(functools.partial(_tensor, name, dtype)))
    return Accelerator


def _tensor(name: str, dtype: torch.dtype, *given) -> torch.Tensor:
    """As torch.FloatTensor: of values, or of a size."""
    if given and all(isinstance(size, int) for size in given):
        return torch.empty(given, dtype=dtype, device=name)
    return torch.tensor(*given, dtype=dtype, device=name)


def _no_kernels(base, class_name: str):
    class Builder(base):
        def load(self, verbose=True):
            raise RuntimeError(
                f"DeepSpeed has no kernels of {class_name} for this device: pass an "
                "optimizer of torch.optim to "
                'deepspeed.initialize, or set "torch_adam": true in the parameters of Adam'
            )

    return Builder


def _detect(module) -> None:
    name = _apply.accelerator()
    if name is None or os.environ.get("DS_ACCELERATOR", name) != name:
        return
    if module.ds_accelerator is None or module.ds_accelerator._name == "cpu":
        base = importlib.import_module("deepspeed.accelerator.cpu_accelerator").CPU_Accelerator
        module.set_accelerator(_accelerator_class(base, name)())


_apply.mend("deepspeed", "0.19.7 to 0.19.8", {"deepspeed.accelerator.real_accelerator": _detect})

"""How an integration changes its framework, and what every one asks before it acts."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable

import torch

from hccl_like import _after_import, integrations
from hccl_like.torch_compat import _ours

# The accelerator that frameworks do not know; None where there is CUDA or no PrivateUse1 device.
accelerator = _ours.accelerator


def mend(framework: str, tested: str, modules: dict[str, Callable]) -> None:
    """Calls each function with its module of the framework, now or after its import.

    ``tested``: the versions, "FIRST to LAST".

    A function that fails makes the import fail: without it the program would train something else,
    unheard.
    """
    if not integrations.is_off():
        for module, function in modules.items():
            _after_import.call(module, functools.partial(_run, framework, tested, function))


def _run(framework: str, tested: str, function: Callable, module) -> None:
    try:
        function(module)
    except Exception as error:
        found = module.__name__.partition(".")[0]
        try:
            found += f" {importlib.metadata.version(found)}"
        except importlib.metadata.PackageNotFoundError:
            pass
        raise RuntimeError(
            f"hccl_like.integrations.{framework} does not fit {found} "
            f"({type(error).__name__}: {error}). It is for {framework} {tested}: pip install "
            f"'hccl-like[{framework}]', or set {integrations.SWITCH}=0 to train without it"
        ) from error


def wrap(owner, name: str):
    """A decorator: the function replaces ``owner.name``, and is given the original first."""

    def replace(function):
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*arguments, **named):
            return function(original, *arguments, **named)

        setattr(owner, name, wrapped)
        return function

    return replace


def take_device() -> torch.device:
    """Makes the device current that is this process' by its number on this host; returns it."""
    import hccl_like

    device = hccl_like.local_device(accelerator())
    torch.accelerator.set_device_index(device.index)
    return device


def computes_with(dtype: torch.dtype) -> bool:
    """Whether the device's module says so of a 16-bit type."""
    module = getattr(torch, accelerator() or "", None)
    types = getattr(module, "get_amp_supported_dtype", None)
    if callable(types):
        return dtype in types()
    ask = getattr(module, "is_bf16_supported", None)
    return dtype == torch.bfloat16 and callable(ask) and ask()

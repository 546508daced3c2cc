"""What there is to know of this process' accelerator, also where its Python module (``torch.<its name>``) answers nothing.

``torch.accelerator`` asks that module, and raises AttributeError where it lacks a function.
"""

from __future__ import annotations

import torch


def named() -> str | None:
    """The device type of the accelerator that torch knows of, whether or not one is there."""
    found = torch._C._accelerator_getAccelerator()
    return None if found is None else found.type


def lacks(function: str) -> bool:
    """Whether its module, if there is one at all, has no such function."""
    return not callable(getattr(getattr(torch, named() or "", None), function, None))


def is_available() -> bool:
    """Whether there is one here. A module that cannot be asked counts as a yes: somebody registered it."""
    kind = named()
    return kind is not None and (lacks("is_available") or torch.accelerator.is_available())


def device_count(kind: str | None = None) -> int:
    """How many there are here, of `kind` if that is given. Where neither module nor hooks know, one: hooks that were never written
    say 0."""
    ask = getattr(getattr(torch, kind or named() or "", None), "device_count", None)
    if callable(ask):
        return ask()
    try:
        return torch._C._accelerator_hooks_device_count() or 1
    except Exception:  # hooks may refuse with any error
        return 1

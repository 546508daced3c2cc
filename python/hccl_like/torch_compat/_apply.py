"""When a patch is applied: at once if torch has its module, else right after that module's first import."""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

import torch

from hccl_like import _after_import

SWITCH = "HCCL_LIKE_TORCH_COMPAT"

log = logging.getLogger(__name__)

# By name, what became of each patch in this process.
_states: dict[str, str] = {}


class Patch(NamedTuple):
    """One thing that is mended."""

    name: str  # what the switch calls it
    module: str  # the module of torch that must have been imported
    mend: str  # file and function in this package that mend it, given that module
    wrong: str  # what is wrong without it, and where
    # The versions of torch that it was tried with.
    first: tuple[int, int] = (2, 12)
    last: tuple[int, int] = (2, 15)

    def versions(self) -> str:
        return " to ".join(".".join(map(str, version)) for version in dict.fromkeys((self.first, self.last)))

    def fits(self, torch_version: str) -> bool:
        major, minor = torch_version.split("+")[0].split(".")[:2]
        return self.first <= (int(major), int(minor)) <= self.last


def install(patches: Sequence[Patch]) -> None:
    """Applies or awaits those that the switch allows and that were not seen before. Harmless when called again."""
    left_out = _left_out(patches, os.environ.get(SWITCH, ""))
    for patch in patches:
        if patch.name in _states:
            continue
        if patch.name in left_out:
            _states[patch.name] = "switched off"
        elif not patch.fits(torch.__version__):
            _states[patch.name] = f"not for torch {torch.__version__}"
            log.debug("hccl_like: patch %s is for torch %s, not for %s", patch.name, patch.versions(), torch.__version__)
        else:
            _states[patch.name] = f"waits for {patch.module}"
            _after_import.call(patch.module, functools.partial(_apply, patch))


def state(patch: Patch) -> str:
    return _states.get(patch.name, "not installed: torch does not load hccl-like")


def _left_out(patches: Sequence[Patch], switch: str) -> set[str]:
    """The names that the switch leaves out; empty or 1: none, 0: all."""
    names = {patch.name for patch in patches}
    if switch.strip() in ("", "1"):
        return set()
    if switch.strip() == "0":
        return names
    left_out = {name.strip() for name in switch.split(",") if name.strip()}
    if unknown := sorted(left_out - names):
        log.warning("%s: there is no patch %s; there are %s", SWITCH, ", ".join(unknown), ", ".join(sorted(names)))
    return left_out


def _apply(patch: Patch, module) -> None:
    """Never raises: torch without a patch is better than a torch that cannot be imported."""
    file, function = patch.mend.split(":")
    try:
        getattr(importlib.import_module(f"hccl_like.torch_compat.{file}"), function)(module)
    except Exception as error:
        _states[patch.name] = f"failed: {type(error).__name__}: {error}"
        log.warning("hccl_like: patch %s could not be applied to torch %s: %s", patch.name, torch.__version__, error)
    else:
        _states[patch.name] = "applied"
        log.debug("hccl_like: patch %s is applied to %s", patch.name, patch.module)

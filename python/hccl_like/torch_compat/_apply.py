"""When a patch is applied: at once if torch has its module, else right after that module's first import.

Waiting for an import costs a look into a small dict for each module that is imported, until the last patch has found its
module. The module's own loader runs it, unchanged; the patch comes after.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import NamedTuple

import torch

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
    waiting: dict[str, list[Patch]] = {}
    for patch in patches:
        if patch.name in _states:
            continue
        if patch.name in left_out:
            _states[patch.name] = "switched off"
        elif not patch.fits(torch.__version__):
            _states[patch.name] = f"not for torch {torch.__version__}"
            log.debug("hccl_like: patch %s is for torch %s, not for %s", patch.name, patch.versions(), torch.__version__)
        elif patch.module in sys.modules:
            _apply(patch, sys.modules[patch.module])
        else:
            _states[patch.name] = f"waits for {patch.module}"
            waiting.setdefault(patch.module, []).append(patch)
    if waiting:
        sys.meta_path.insert(0, _AfterImport(waiting))


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


class _AfterImport(MetaPathFinder):
    """Lets the other finders find the modules it waits for, and is called back after such a module has run."""

    def __init__(self, waiting: dict[str, list[Patch]]) -> None:
        self._waiting = waiting

    def find_spec(self, name, path, target=None):
        if name not in self._waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # an old finder may have none
            if finder is not self and find is not None and (spec := find(name, path, target)):
                self._watch(name, spec.loader)
                return spec
        return None

    def _watch(self, name: str, loader) -> None:
        """The loader is this module's own: for this one run its method is replaced."""
        run = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            run(module)
            for patch in self._waiting.pop(name, ()):
                _apply(patch, module)
            if not self._waiting and self in sys.meta_path:
                sys.meta_path.remove(self)

        loader.exec_module = exec_module

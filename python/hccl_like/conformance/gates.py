"""The conditions that torch's test modules put before a test: recorded with their reasons, some of them lifted.

Every ``skip...`` decorator that a test module uses is replaced while that module is imported. A gate is of kind

* ``name``: the condition looked at the backend's name (known by `Name` having been compared). Lifted: what upstream
  keeps from a backend it does not know is exactly what is to be tested;
* ``disabled``: switched off upstream, with an issue or as flaky. Lifted only with --include-disabled;
* ``environment``: anything else, such as a missing torchvision or too few ranks. Stays.

The decorators that ask for GPUs are replaced too: they know no PrivateUse1 device, and they tell which tests are about
tensors on a device.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unittest import mock

from hccl_like.conformance.names import Name

CPU, DEVICE, EITHER = "cpu", "device", "either"

_DISABLED = re.compile(r"github\.com/pytorch|flak|fail", re.IGNORECASE)
# Told by its words: a look at the name that led to no gate may lie between the last gate and this one.
_ENVIRONMENT = re.compile(r"world size|torchvision", re.IGNORECASE)


@dataclass(frozen=True)
class Gate:
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


@dataclass(frozen=True)
class Requirements:
    """What the decorators of one test ask for, as far as nothing else enforces it."""

    gates: tuple[Gate, ...] = ()
    # Whether the tensors are on the device, on the CPU, or where the backend's name says.
    side: str = CPU
    devices: int = 0
    ranks: int = 1


def of(function: Callable) -> Requirements:
    return getattr(function, "_conformance", Requirements())


def needs(function: Callable, **requirements) -> None:
    """Marks a test that says by its body only what it needs."""
    _note(function, **requirements)


def _note(function: Callable, **changes) -> None:
    known = of(function)
    if "gate" in changes:
        changes["gates"] = (*known.gates, changes.pop("gate"))
    for most in ("devices", "ranks"):
        changes[most] = max(getattr(known, most), changes.get(most, 0))
    setattr(function, "_conformance", Requirements(**{**known.__dict__, **changes}))


def reason_to_skip(function: Callable, devices: int, world_size: int, include_disabled: bool) -> str | None:
    """Why a test is not run with so many devices and ranks; None if it is."""
    needs = of(function)
    for gate in needs.gates:
        if gate.kind == "environment" or (gate.kind == "disabled" and not include_disabled):
            return f"disabled by PyTorch: {gate.reason}" if gate.kind == "disabled" else gate.reason
    if needs.devices > devices and needs.side == DEVICE:
        return f"needs {needs.devices} devices, there are {devices}"
    if needs.ranks > world_size:
        return f"needs {needs.ranks} ranks"
    return None


class Recorder:
    """Replacements for the decorators. They mark the test and leave it runnable."""

    def __init__(self, name: Name) -> None:
        self._name = name

    def _gate(self, condition, reason: str) -> Callable:
        by_name = self._name.take_compared()
        if not condition:
            return lambda function: function
        kind = "name" if by_name else "environment"
        if _DISABLED.search(reason):
            kind = "disabled"
        elif _ENVIRONMENT.search(reason):
            kind = "environment"

        def decorate(function):
            _note(function, gate=Gate(kind, reason))
            return function

        return decorate

    def skip_if(self, condition, reason: str) -> Callable:
        return self._gate(condition, reason)

    def skip(self, reason: str) -> Callable:
        return self._gate(True, reason)

    def needs(self, **requirements) -> Callable:
        """A decorator that marks a wrapper, as torch's own do: a test may ask for ``__wrapped__``."""

        def decorate(function):
            @functools.wraps(function)
            def wrapper(*arguments, **keywords):
                return function(*arguments, **keywords)

            _note(wrapper, **requirements)
            return wrapper

        self._name.take_compared()
        return decorate

    def needs_nothing(self, *_, **__) -> Callable:
        return lambda function: function


@contextlib.contextmanager
def recorded(name: Name) -> Iterator[None]:
    """While this lasts, a test module that is imported gets the replacements from torch's common modules."""
    from torch.testing._internal import common_distributed, common_utils

    recorder = Recorder(name)
    # Group tests run on ranks 1 and 2; the eight ranks that upstream asks for keep them out of its own CI.
    small_world = recorder.needs(ranks=3)
    everywhere = {
        "skip_but_pass_in_sandcastle_if": recorder.skip_if,
        "skip_but_pass_in_sandcastle": recorder.skip,
    }
    distributed = {
        "skip_if_no_gpu": recorder.needs(side=DEVICE, devices=int(os.environ["WORLD_SIZE"])),
        "skip_if_lt_x_gpu": lambda devices, **_: recorder.needs(side=DEVICE, devices=devices),
        "nccl_skip_if_lt_x_gpu": lambda _, devices: recorder.needs(side=EITHER, devices=devices),
        "require_n_gpus_for_nccl_backend": recorder.needs_nothing,
        "requires_nccl_version": recorder.needs_nothing,
        "skip_if_small_worldsize": small_world,
    }
    with contextlib.ExitStack() as stack:
        for attribute, replacement in everywhere.items():
            stack.enter_context(mock.patch.object(common_utils, attribute, replacement))
        for attribute, replacement in {**everywhere, **distributed}.items():
            stack.enter_context(mock.patch.object(common_distributed, attribute, replacement))
        stack.enter_context(mock.patch.object(unittest, "skipIf", recorder.skip_if))
        stack.enter_context(mock.patch.object(unittest, "skip", recorder.skip))
        yield

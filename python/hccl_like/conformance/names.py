"""A backend's name as torch's tests see it.

They ask ``BACKEND == "gloo"`` or ``== "nccl"`` both to skip and to choose what a test does, and know no further name. A
`Name` is the backend's own name that also equals the one it stands in for: gloo on CPU tensors, nccl on a device. It
notes that somebody compared it, by which a condition on the name is told from any other (see gates.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any
from unittest import mock


class Name(str):
    """A string equal to itself and to one stand-in. Its methods (``lower()``) give plain strings."""

    stands_for: str
    compared: bool

    def __new__(cls, name: str, stands_for: str) -> Name:
        self = super().__new__(cls, name)
        self.stands_for = stands_for
        self.compared = False
        return self

    def __eq__(self, other: object) -> bool:
        self.compared = True
        return str.__eq__(self, other) is True or other == self.stands_for

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Sets of names are asked with the own name only: the runner adds it to those that name a feature.
    def __hash__(self) -> int:
        self.compared = True
        return str.__hash__(self)

    def take_compared(self) -> bool:
        """Whether it was compared since the last call."""
        compared, self.compared = self.compared, False
        return compared


@contextlib.contextmanager
def read_from_environment(name: Name) -> Iterator[None]:
    """While torch's test module is imported, ``os.environ["BACKEND"]`` gives the object, not a copy of its letters."""
    environment = type(os.environ)
    read = environment.__getitem__

    def getitem(self, key):
        return name if key == "BACKEND" else read(self, key)

    with mock.patch.object(environment, "__getitem__", getitem):
        yield


class Proxy(ModuleType):
    """A module seen through some replacements."""

    def __init__(self, module: ModuleType, **replacements: Any) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(replacements)
        self.__dict__["_proxied"] = module

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.__dict__["_proxied"], attribute)


def distributed_proxy(dist: Any, backend: str, *stand_ins: str) -> Proxy:
    """torch.distributed for a test module: a group of ``nccl``, or of a stand-in, is one of the backend under test."""
    means = dict.fromkeys(("nccl", "xccl", *stand_ins), backend)

    def translated(function: Callable) -> Callable:
        def call(*arguments, **keywords):
            asked = keywords.get("backend")
            if isinstance(asked, str):
                plain = str.lower(asked)
                keywords["backend"] = means.get(plain, plain)
            elif arguments and isinstance(arguments[0], str):  # init_process_group("nccl")
                arguments = (means.get(str.lower(arguments[0]), arguments[0]), *arguments[1:])
            return function(*arguments, **keywords)

        return call

    class Backend(dist.Backend):
        pass

    for asked, meant in means.items():
        setattr(Backend, asked.upper(), meant)
    return Proxy(
        dist,
        Backend=Backend,
        new_group=translated(dist.new_group),
        init_process_group=translated(dist.init_process_group),
        monitored_barrier=_any_monitored_barrier(dist),
    )


def _any_monitored_barrier(dist: ModuleType) -> Callable:
    """torch refuses every backend but gloo before asking it; the process group itself asks the backend."""

    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        if dist.distributed_c10d._rank_not_in_group(group) or dist.get_backend(group) == "gloo":
            return dist.monitored_barrier(group, timeout, wait_all_ranks)
        group = dist.group.WORLD if group is None else group
        if timeout is None:
            timeout = dist.distributed_c10d._get_default_timeout(dist.get_backend(group))
        elif isinstance(timeout, float):
            timeout = timedelta(seconds=timeout)
        return group.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    return monitored_barrier

"""PyTorch's own files ``test/distributed/*.py``, which no wheel has, out of a checkout that ``--checkout`` names.

A file is imported with `gloo` (on CPU tensors) or `nccl` (on a device) read as the backend under test, and with ``cuda`` read as
the device. The suite has the file's classes of MultiProcessTestCase; of classes that a file makes for each type of device it has
the one under test. Classes of MultiProcContinuousTest are skipped: they keep their ranks from test to test.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib.util
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

from hccl_like.conformance import device as devices
from hccl_like.conformance import gates, names
from hccl_like.conformance.suites import distributed

FOLDER = Path("test", "distributed")


def files(checkout: Path, patterns: list[str]) -> list[str]:
    """The names of the files that fit, relative to test/distributed and without ``.py``; raises where none fits."""
    folder = checkout / FOLDER
    every = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("test_*.py"))
    if not every:
        raise ValueError(f"{checkout} is no checkout of PyTorch: there is no test in {folder}")
    found = []
    for pattern in patterns:
        fitting = fnmatch.filter(every, pattern.removesuffix(".py"))
        if not fitting:
            raise ValueError(f"no file of {folder} fits {pattern!r}")
        found += [name for name in fitting if name not in found]
    return found


class File:
    """A suite: one file."""

    def __init__(self, checkout: Path, name: str) -> None:
        self._path = checkout / FOLDER / f"{name}.py"
        self._folders = [self._path.parent, checkout / FOLDER, checkout / "test"]

    def load(self, backend: str, device: str, world_size: int) -> list[type[unittest.TestCase]]:
        from torch.testing._internal import common_distributed

        module = self._imported(backend, device)
        count = devices.count(device)
        found = []
        for case in vars(module).values():
            if not isinstance(case, type) or not issubclass(case, unittest.TestCase) or case.__module__ != module.__name__:
                continue
            # A file may make a class for each type of device.
            made_for = getattr(case, "device_type", device)
            if isinstance(made_for, str) and made_for not in (device, "privateuse1"):
                continue
            skips: dict[str, str] = {}
            for name in unittest.TestLoader().getTestCaseNames(case):
                reason = gates.reason_to_skip(getattr(case, name), count, world_size, include_disabled=False)
                if issubclass(case, common_distributed.MultiProcContinuousTest):
                    reason = "keeps its ranks from test to test"
                elif not issubclass(case, common_distributed.MultiProcessTestCase):
                    reason = "makes no group of processes"
                if reason:
                    skips[name] = reason
            setattr(case, "conformance_skips", skips)
            found.append(case)
        return found

    def _imported(self, backend: str, device: str):
        import torch
        import torch.distributed as dist
        from torch.testing._internal import common_device_type, common_distributed

        stand_in = "gloo" if device == "cpu" else "nccl"
        name = names.Name(backend, stand_in)
        distributed.let_in(backend)
        proxy = names.distributed_proxy(dist, backend, stand_in)
        for function in ("init_process_group", "new_group", "monitored_barrier"):
            setattr(dist, function, getattr(proxy, function))
        common_distributed.DistributedTestBase.backend = lambda self, device: backend
        dist.get_default_backend_for_device = lambda device: backend
        spec = importlib.util.spec_from_file_location(self._path.stem, self._path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        sys.path[:0] = map(str, self._folders)
        with contextlib.ExitStack() as stack:
            if device != "cpu":
                distributed.bring_the_device(device)
                # A device that is opened here could not be used in the tests' processes, which are forked.
                number = devices.count(device)
                for place in (torch.accelerator, getattr(torch, device)):
                    stack.enter_context(mock.patch.object(place, "device_count", lambda: number))
            stack.enter_context(mock.patch.object(common_device_type, "instantiate_device_type_tests", _for_the(device)))
            only = {common_device_type.PYTORCH_TESTING_DEVICE_ONLY_FOR_KEY: device}
            stack.enter_context(mock.patch.dict(os.environ, only))
            stack.enter_context(names.read_from_environment(name))
            stack.enter_context(gates.recorded(name))
            spec.loader.exec_module(module)
        return module


def _for_the(device: str):
    """instantiate_device_type_tests for a device that a file does not know: what it makes for cuda it makes for this one."""
    from torch.testing._internal import common_device_type

    original = common_device_type.instantiate_device_type_tests

    def instantiate(test_class, scope, except_for=None, only_for=None, **more):
        if only_for is not None and device != "cpu" and "cuda" in only_for:
            only_for = (device,)
        original(test_class, scope, except_for=except_for, only_for=only_for, **more)

    return instantiate

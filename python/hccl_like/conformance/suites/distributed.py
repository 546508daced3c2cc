"""``DistributedTest._DistTestBase``: 285 tests of every collective, of groups, DDP, profiling and join.

On the device ``cpu`` those about CPU tensors run, on any other device those about tensors there.
"""

from __future__ import annotations

import functools
import os
import unittest

from hccl_like.conformance import device as devices
from hccl_like.conformance import gates, names
from hccl_like.conformance.settings import current as settings

# They make or look into ProcessGroupNCCL itself.
_NEED_NCCL = {
    "test_nccl_high_priority_stream": "makes a ProcessGroupNCCL.Options",
    "test_ddp_profiling_execution_trace": "asserts that the backend is nccl",
}

# About tensors on a device without a decorator that says so: their body uses cuda.
_ON_THE_DEVICE = (
    "test_all_to_all_cuda",
    "test_all_to_all_cuda_complex",
    "test_all_to_all_group_cuda",
    "test_all_to_all_full_group_cuda",
    "test_batch_isend_irecv_op_err",
)


def load(backend: str, device: str, world_size: int) -> list[type[unittest.TestCase]]:
    module = import_tests(backend, device)
    side = gates.CPU if device == "cpu" else gates.DEVICE
    if device != "cpu":
        _bring_the_device(module, device)
    return [suite_class(module, "DistributedTests", side, device, world_size)]


def import_tests(backend: str, device: str):
    """torch's test module, imported with `backend` as a name it knows."""
    name = names.Name(backend, "gloo" if device == "cpu" else "nccl")
    let_in(backend)
    # Each test gets a file of its own as meeting point; here only the kind is looked at.
    os.environ["INIT_METHOD"] = "file://"
    with names.read_from_environment(name), gates.recorded(name):
        from torch.testing._internal.distributed import distributed_test as module
    for test in _ON_THE_DEVICE:
        if function := getattr(module.DistributedTest._DistTestBase, test, None):
            gates.needs(function, side=gates.DEVICE, devices=int(os.environ["WORLD_SIZE"]))
    if settings.profiling:
        for supported in (
            module.PROFILING_SUPPORTED_BACKENDS,
            module.CUDA_PROFILING_SUPPORTED_BACKENDS,
            module.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
        ):
            supported.append(backend)
    module.dist = names.distributed_proxy(module.dist, backend)
    return module


def let_in(backend: str) -> None:
    """torch's lists of what backends can do have this one."""
    from torch.testing._internal import common_distributed

    for feature in ("plugin", "gpu", "cuda", "ddp", "subgroup"):
        common_distributed.DistTestCases.backend_feature[feature].add(backend)


def suite_class(module, class_name: str, side: str, device: str, world_size: int) -> type[unittest.TestCase]:
    """A class with the tests of one side; those that do not apply carry their reason."""

    class Tests(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            module.INIT_METHOD = os.environ["INIT_METHOD"]
            self._spawn_processes()

    Tests.__name__ = Tests.__qualname__ = class_name
    loaded = unittest.TestLoader().getTestCaseNames(Tests)
    Tests.conformance_tests = [
        name for name in loaded if gates.of(getattr(Tests, name)).side in (side, gates.EITHER)
    ]
    count = devices.count(device)
    Tests.conformance_skips = {}
    for name in Tests.conformance_tests:
        reason = gates.reason_to_skip(getattr(Tests, name), count, world_size, settings.include_disabled)
        if side == gates.DEVICE and name in _NEED_NCCL:
            reason = f"bound to NCCL: {_NEED_NCCL[name]}"
        if reason:
            Tests.conformance_skips[name] = reason
    return Tests


def bring_the_device(device: str):
    """What torch's common module for tests calls cuda is the device; torch as that module sees it."""
    import torch
    from torch.testing._internal import common_distributed

    devices.replace_cuda_methods(device)
    common_distributed.torch = devices.torch_proxy(torch, device)
    common_distributed.TEST_CUDA = True
    return common_distributed.torch


def _bring_the_device(module, device: str) -> None:
    """What the module calls cuda is the device."""
    import torch

    module.torch = bring_the_device(device)
    module.autocast = functools.partial(torch.autocast, device)
    module.GradScaler = functools.partial(torch.amp.GradScaler, device)

"""The tests of `distributed` about CPU tensors, once more, with the device as torch's default device."""

from __future__ import annotations

import unittest
from typing import Any

from hccl_like.conformance import gates
from hccl_like.conformance.suites import distributed


def load(backend: str, device: str, world_size: int) -> list[type[unittest.TestCase]]:
    if device == "cpu":
        raise ValueError("the suite 'retarget' moves tests to a device: name one with --device")
    module = distributed.import_tests(backend, "cpu")
    tests: Any = distributed.suite_class(module, "RetargetedTests", gates.CPU, device, world_size)
    on_cpu = tests._run.__func__

    def run_on_device(cls, rank, *arguments, **keywords):
        import torch

        getattr(torch, device).set_device(rank)
        torch.set_default_device(torch.device(device, rank))
        on_cpu(cls, rank, *arguments, **keywords)

    tests._run = classmethod(run_on_device)
    return [tests]

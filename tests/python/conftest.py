import contextlib
import os

import pytest
import torch

import hosts as several


def pytest_report_header():
    return f"TORCH_SIM_STRICT={os.environ.get('TORCH_SIM_STRICT', 0)}"


def has_simulator():
    return hasattr(torch, "sim")


@pytest.fixture(params=["cpu", "sim"])
def device(request):
    """The kind of device that tensors are on, as ranks name it."""
    if request.param == "sim" and not has_simulator():
        pytest.skip("the simulated accelerator is not installed: pip install ./simulator")
    return request.param


@pytest.fixture(params=["shm", "tcp"])
def transport(request):
    """The environment that makes ranks use one transport only."""
    return {"HCCL_LIKE_TRANSPORTS": request.param}


@pytest.fixture
def sim():
    if not has_simulator():
        pytest.skip("the simulated accelerator is not installed: pip install ./simulator")
    return "sim"


@pytest.fixture
def make_hosts():
    """Makes Hosts (hosts.py) that go away with the test, or skips."""
    if reason := several.why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **how: stack.enter_context(several.Hosts(*arguments, **how))

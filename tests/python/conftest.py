import contextlib
import os
import tempfile
from pathlib import Path

import pytest
import torch

import hosts as several


def pytest_report_header():
    return f"TORCH_SIM_STRICT={os.environ.get('TORCH_SIM_STRICT', 0)}"


def pytest_configure(config):
    if os.environ.get("TORCH_SIM_STRICT", "0") != "0":
        os.environ.setdefault("TORCH_SIM_STRICT_REPORT", str(Path(tempfile.mkdtemp(prefix="sim-strict-")) / "accesses"))


def strict_accesses():
    """What the simulator told of accesses to device memory outside of the device's operations, by whatever process."""
    report = os.environ.get("TORCH_SIM_STRICT_REPORT")
    return Path(report).read_text().splitlines() if report and Path(report).exists() else []


def pytest_sessionfinish(session):
    if strict_accesses():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    if "TORCH_SIM_STRICT_REPORT" in os.environ:
        told = strict_accesses()
        terminalreporter.write_line(f"accesses to device memory outside of the device's operations: {len(told)}")
        for line in told:
            terminalreporter.write_line(line)


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

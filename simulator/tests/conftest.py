import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch


# For what strict mode does on purpose.
def not_strict(test):
    reason = "strict mode works otherwise"
    strict = os.environ.get("TORCH_SIM_STRICT", "0") != "0"
    return pytest.mark.not_strict(pytest.mark.skipif(strict, reason=reason)(test))


def pytest_configure(config):
    config.addinivalue_line("markers", "not_strict: about what strict mode does otherwise")
    config.addinivalue_line("markers", "slow: takes more than half a minute")


@pytest.fixture(autouse=True)
def clean_device():
    """Each test begins on device 0 and its default stream, with nothing queued, and a known seed."""
    torch.manual_seed(1234)
    yield
    for index in range(torch.sim.device_count()):
        torch.sim.synchronize(index)
        torch.sim.set_stream(torch.sim.default_stream(index))
    torch.sim.set_device(0)


class Gate:
    """Work that holds up a stream until the test lets it go. What returns while the gate is closed has not waited for it."""

    def __init__(self):
        self._opened = threading.Event()

    def close(self, stream=None):
        torch.sim.launch_host_func(stream or torch.sim.current_stream(), self._opened.wait)

    def open(self):
        self._opened.set()


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def second_gate():
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def python():
    """Run a program in a fresh interpreter: python(code, returncode=0, **environment) -> its output."""

    def run(code, returncode=0, timeout=120, **environment):
        if returncode:  # whatever it does, it does on purpose
            environment.setdefault("TORCH_SIM_STRICT_REPORT", "")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == returncode, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run

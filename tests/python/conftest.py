import contextlib
import gc
import os
from pathlib import Path

import pytest
import torch

import hosts as several
from plugins import build

# torch's TCPStore asks the name server who its peer is, and would wait five seconds for an answer that got lost.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")


def pytest_collection_finish():
    """Ranks are forked from this process: a garbage collection in one of them would read, and so copy, all that was imported here."""
    gc.collect()
    gc.freeze()


def has_simulator():
    return hasattr(torch, "sim")


def slow_after_first(values):
    """For parametrize: what a test is tried with at night only, but for the first."""
    first, *others = values
    return [first, *(pytest.param(value, marks=pytest.mark.slow) for value in others)]


# scripts/cuda_check.sh names another.
DEVICES = os.environ.get("RANKS_DEVICES", "cpu,sim").split(",")


@pytest.fixture(params=DEVICES)
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


def _built(kind, tmp_path_factory):
    """The plugin of KIND_plugin.c, or skips."""
    return build(Path(__file__).with_name(f"{kind}_plugin.c"), tmp_path_factory.mktemp("plugin") / f"lib{kind}.so", "-ldl")


@pytest.fixture(scope="session")
def stripped(tmp_path_factory):
    """A plugin that lacks entries, for plugins.run()."""
    return _built("stripped", tmp_path_factory)


@pytest.fixture(scope="session")
def faulty(tmp_path_factory):
    """A plugin with a fault."""
    return _built("faulty", tmp_path_factory)


@pytest.fixture
def make_hosts():
    """Makes Hosts (hosts.py) that go away with the test, or skips."""
    if reason := several.why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **how: stack.enter_context(several.Hosts(*arguments, **how))

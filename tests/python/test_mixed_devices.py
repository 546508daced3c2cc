"""Ranks of one group on different devices, or on none: the calls are the same, and so are the results."""

import os
import re
import socket
from pathlib import Path

import pytest

import fresh
from conftest import slow_after_first

# The kinds of mixed.py. A group whose ranks cannot see that they differ is told by one of them.
GROUPS = [
    "sim,npux,cpu", "sim,bare,cpu", "bare,bare-npux", "discrete,npux,bare", "cpu,discrete", "sim,discrete-told",
    "cpu-beside-sim-told,sim,npux",
]  # fmt: skip


@pytest.fixture
def run(sim, stripped):
    """Runs cases of mixed.py one after the other in one group."""

    def run(cases, kinds, *arguments, **environment):
        from hccl_like import _plugins

        plugins = {"PLUGIN": _plugins.found()["sim"], "STRIPPED": stripped, "WITHOUT": ""}
        program = Path(__file__).with_name("mixed.py")
        done = fresh.run([program, cases, kinds, *arguments], env={**os.environ, **plugins, "TORCH_SIM": "0", **environment}, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("kinds", slow_after_first(GROUPS))
def test_every_call_is_exact(kinds, run):
    run("collectives,sizes,disagreement", kinds, HCCL_LIKE_SLICE_BYTES="64K")


@pytest.mark.parametrize("kinds", slow_after_first(["sim,npux,cpu", "sim,sim,cpu", "cpu-beside-sim-told,sim"]))
def test_calls_on_the_host_overtake_those_on_a_device(kinds, run):
    run("overtaken", kinds)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", GROUPS)
def test_large_calls_are_exact(kinds, run):
    run("large_sizes", kinds)


@pytest.mark.parametrize("kinds", slow_after_first(GROUPS))
def test_training_and_checkpoints_are_those_of_one_process(kinds, run, tmp_path):
    run("data_parallel,checkpointed", kinds, str(tmp_path), HCCL_LIKE_VERIFY="1")


@pytest.mark.parametrize("kinds", slow_after_first(["sim,cpu,npux", "discrete,sim,cpu", "bare,cpu"]))
def test_calls_between_hosts_are_exact(kinds, run, make_hosts):
    run("collectives", kinds, HCCL_LIKE_SLICE_BYTES="64K", MIXED_HOSTS="2")


def test_what_takes_devices_of_one_type_says_so(run):
    run("refused", "sim,npux")


@pytest.mark.parametrize("kinds", ["sim,cpu-beside-sim", "sim,discrete"])
def test_ranks_that_cannot_see_that_their_devices_differ_are_told_what_to_set(kinds, run):
    run("untold", kinds, MIXED_TIMEOUT="2")


def test_the_page_s_example_does_what_it_says(run):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    said = run("page", "sim,cpu", str(Path(__file__).parents[2] / "docs" / "mixed-devices.md"), port)
    # Two processes print, and the ends of their lines may come in any order.
    assert sorted(re.findall(r"(cpu|sim:0): all ranks have the same weights: True", said)) == ["cpu", "sim:0"], said

"""The suites over torch's test bases, run by the runner against our backend: no test may fail, and which are skipped is known."""

import json
import os
import subprocess
import sys

import pytest

from conftest import slow_after_first

# Of each suite a test or two that together use most of its collectives.
QUICK = {
    "checkpoint": ["Tensors.test_loaded_with", "Models.test_rank_0"],
    "ddp": ["Hooks.test_a_chain_of_futures", "Zero.test_as_one"],
    "dtensor": ["BoundMeshes.test_a_slice_is", "Placements.test_two_dimensions"],
    "fsdp": ["BoundHybrid.test_a_mesh_of_two_dimensions", "Parity.test_full_shard"],
    "fsdp2": ["BoundParity.test_two_replicas", "States.test_a_plain_state"],
    "functional": ["Functional.test_all", "Autograd.test_a"],
    "pipeline": ["SeveralStagesEach.test_interleaved_zero_bubble"],
    "tensor_parallel": ["Layers.test_columns_then_rows"],
}
BY_DAY = ["dtensor"]  # what the others are made of has tests of its own here, too
# At most, by suite and device. One more of fsdp2 asks the backend to allocate tensors, which not every device can.
SKIPPED = {("checkpoint", "cpu"): 1, ("checkpoint", "sim"): 1, ("ddp", "cpu"): 3, ("dtensor", "cpu"): 2, ("fsdp", "cpu"): 9, ("fsdp2", "cpu"): 2}


def results(suite, device, folder, *options):
    """Outcomes of the suite's tests, by name."""
    file = folder / "results.json"
    command = [sys.executable, "-m", "hccl_like.conformance", "--backend", "hccl-like", "--device", device]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    process = subprocess.run([*command, "--suite", suite, "--json", str(file), *options], env=environment, text=True, capture_output=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return {test["id"]: test["outcome"] for test in json.loads(file.read_text())["tests"]}


@pytest.mark.parametrize("device", slow_after_first(["sim", "cpu"]), indirect=True)
@pytest.mark.parametrize("suite", [suite if suite in BY_DAY else pytest.param(suite, marks=pytest.mark.slow) for suite in QUICK])
def test_a_few_tests_of_each_suite_pass(suite, device, tmp_path):
    found = results(suite, device, tmp_path, *(option for name in QUICK[suite] for option in ("-k", name)))
    assert len(found) >= len(QUICK[suite]) and set(found.values()) == {"pass"}


@pytest.mark.slow
@pytest.mark.parametrize("suite", QUICK)
def test_a_whole_suite_passes(suite, device, tmp_path):
    found = list(results(suite, device, tmp_path).values())
    assert len(found) > 20
    assert found.count("skip") <= SKIPPED.get((suite, device), 0) + (suite == "fsdp2")

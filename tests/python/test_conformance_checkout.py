"""The conformance runner with files of a checkout of PyTorch, and with gloo, whose result is known."""

import json
import os
import subprocess
import sys

import pytest

from conftest import has_simulator

FILE = """
import torch
import torch.distributed as dist
from helper_of_the_checkout import ONE
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_distributed import (
    DistributedTestBase, MultiProcContinuousTest, requires_gloo, skip_if_lt_x_gpu,
)

class Generic(DistributedTestBase):
    @property
    def world_size(self):
        return 2

    def test_all_reduce(self, device):
        self.create_pg(device)
        tensor = torch.full((3,), self.rank + ONE, device=device)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.tolist(), [3.0] * 3)
        self.assertEqual(dist.get_backend(), "hccl-like")

instantiate_device_type_tests(Generic, globals(), only_for=("cpu", "cuda"))

class Named(DistributedTestBase):
    @property
    def world_size(self):
        return 2

    @requires_gloo()
    def test_with_gloo(self):
        store = dist.FileStore(self.file_name, 2)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=2)
        self.assertEqual(dist.get_backend(), "hccl-like")

    def test_fails(self):
        self.assertEqual(self.rank, 0)

class Kept(MultiProcContinuousTest):
    def test_with_ranks_of_another_test(self):
        pass
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "test" / "distributed" / "deeper").mkdir(parents=True)
    (folder / "test" / "distributed" / "deeper" / "test_some.py").write_text(FILE)
    (folder / "test" / "helper_of_the_checkout.py").write_text("ONE = 1.0\n")
    return folder


def run(*arguments):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-m", "hccl_like.conformance", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def outcomes(file):
    return {test["id"]: (test["outcome"], test["reason"]) for test in json.loads(file.read_text())["tests"]}


def test_files_of_a_checkout_are_run_on_cpu_tensors(checkout, tmp_path):
    done = run("--checkout", checkout, "--suite", "deeper/test_*", "--json", tmp_path / "all.json")
    assert done.returncode == 1, done.stdout + done.stderr
    found = outcomes(tmp_path / "all.json")
    assert found.pop("deeper/test_some.Named.test_fails")[0] == "fail"
    assert found == {
        "deeper/test_some.GenericCPU.test_all_reduce_cpu": ("pass", ""),
        "deeper/test_some.Named.test_with_gloo": ("pass", ""),
        "deeper/test_some.Kept.test_with_ranks_of_another_test": ("skip", "keeps its ranks from test to test"),
    }, done.stdout


@pytest.mark.skipif(not has_simulator(), reason="the simulated accelerator is not installed")
def test_files_of_a_checkout_are_run_on_a_device(checkout, tmp_path):
    done = run("--checkout", checkout, "--suite", "deeper/test_some", "-k", "Generic", "--device", "sim", "--json", tmp_path / "all.json")
    assert outcomes(tmp_path / "all.json") == {"deeper/test_some.GenericPRIVATEUSE1.test_all_reduce_sim": ("pass", "")}, done.stdout


@pytest.mark.parametrize("arguments, told", [
    (["--suite", "test_none"], "no file of "),
    ([], "--checkout takes --suite"),
], ids=["no such file", "no suite"])  # fmt: skip
def test_what_a_checkout_has_not_is_told(checkout, arguments, told):
    done = run("--checkout", checkout, *arguments)
    assert done.returncode == 2 and told in done.stdout, done.stdout + done.stderr


def test_a_folder_that_is_no_checkout_is_told(tmp_path):
    done = run("--checkout", tmp_path, "--suite", "test_*")
    assert done.returncode == 2 and "is no checkout of PyTorch" in done.stdout


def test_gloo_has_its_known_result(tmp_path):
    """Of the tests of all_to_all; the nightly run has all of them."""
    done = run("--backend", "gloo", "-k", "all_to_all", "--jobs", "2", "--json", tmp_path / "all.json")
    assert done.returncode == 0, done.stdout + done.stderr
    ways = [outcome for outcome, _ in outcomes(tmp_path / "all.json").values()]
    assert (ways.count("pass"), ways.count("xfail"), len(ways)) == (8, 4, 12)

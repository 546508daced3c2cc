"""scripts/cuda_check.sh: what it says without a GPU, and its steps on the simulator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hccl_like import _plugins

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cuda_check.sh"


def check(*arguments, **environment):
    return subprocess.run(
        ["bash", SCRIPT, *arguments],
        env={**os.environ, "PYTHON": sys.executable, "TORCH_SIM_DISCRETE": "1", **environment},
        capture_output=True,
        text=True,
    )


def summary(done):
    return done.stdout.split("Summary on ")[1].splitlines()[1:]


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU")
def test_without_a_gpu_it_says_what_is_missing():
    done = check()
    assert done.returncode == 2 and done.stdout == "", done.stdout
    assert done.stderr.startswith("cuda_check.sh: nothing was run, because this is missing: ")
    assert "the CUDA driver (libcuda.so.1 does not load)" in done.stderr


def test_a_step_that_does_not_exist_is_named():
    done = check("--device", "sim", "contracts")
    assert done.returncode == 2 and "there is no step contracts, but: build contract" in done.stderr


def test_each_step_has_its_result_and_one_that_fails_is_told(sim):
    done = check("--device", "sim", "contract")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = summary(done)
    assert line.startswith("ok      contract") and "[  PASSED  ]" in line
    done = check("--device", "sim", "contract", "contract", HCCL_LIKE_DEVICE_PLUGINS="sim=none")
    assert done.returncode == 1 and "sim is neither a file nor a device with a plugin" in done.stdout
    assert [line.split()[:2] for line in summary(done)] == [["FAILED", "contract"]] * 2


@pytest.mark.slow
def test_a_call_that_does_not_go_by_streams_fails_the_step(sim, stripped, faulty):
    plugins = {"HCCL_LIKE_DEVICE_PLUGINS": f"sim={stripped}", "PLUGIN": faulty, "SOUND_PLUGIN": _plugins.found()["sim"]}
    done = check("--device", "sim", "streams", WITHOUT="map", FAULT="peer_open:1", **plugins)
    assert done.returncode == 1 and "cannot be mapped for the device" in done.stdout, done.stdout


def test_steps_have_a_limit_of_time_together(sim):
    done = check("--device", "sim", "contract", LIMIT_S="0")
    assert done.returncode == 1 and "not run: 0 s were over" in done.stdout


@pytest.mark.slow
def test_the_steps_pass_on_the_simulator(sim):
    done = check("--device", "sim", "doctor", "collectives_of_2", "large_of_2", "types", "streams", "figures", LARGEST="1M")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(line.startswith("ok ") for line in summary(done)) and len(summary(done)) == 6

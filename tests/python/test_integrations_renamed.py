"""Training on a device under a name of its vendor's, without a plugin: by frameworks, and by torch alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import hccl_like
from integrations import begun, calls, needs
from test_autoload import install
from test_renamed_device import VENDOR, WAYS
from training import train

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from integrations import are_as_of_one_process, launched
from {module} import {function}

assert not hasattr(torch, "sim")
are_as_of_one_process(launched({function}, {arguments}), "{used}", kind="npux")
"""
ACCELERATE_FSDP2 = "True, {'fsdp_version': 2, 'auto_wrap_policy': 'no_wrap'}"
SHARDS = "_reduce_scatter_base"


def by_torch_alone(sharded):
    device = hccl_like.local_device()
    torch.accelerator.set_device_index(device.index)
    dist.init_process_group("hccl-like")
    assert hccl_like._C.describe_device(device) == WAYS["without one"]
    plain = begun().to(device)
    wrapped = fully_shard(plain) if sharded else DistributedDataParallel(plain)
    train(wrapped, device)
    got = [getattr(one, "full_tensor", lambda one=one: one)() for one in wrapped.parameters()]
    return [one.detach().cpu() for one in got], str(device), calls()


def trains(tmp_path, module, function, arguments, used="all_reduce"):
    folder = install(tmp_path, "npux_device", VENDOR)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    program = PROGRAM.format(module=module, function=function, arguments=arguments, used=used)
    done = subprocess.run(
        [sys.executable, "-c", program, Path(__file__).parent],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TORCH_SIM": "0", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("sharded, used", [(False, "all_reduce"), (True, SHARDS)], ids=["DDP", "FSDP2"])
def test_torch_trains_one_model_on_a_device_of_any_name(sharded, used, sim, tmp_path):
    trains(tmp_path, Path(__file__).stem, by_torch_alone.__name__, sharded, used)


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework, function, arguments, used",
    [
        ("accelerate", "trains", "True", "all_reduce"),
        ("accelerate", "trains", ACCELERATE_FSDP2, SHARDS),
        ("lightning", "fabric_trains", "'lightning'", "all_reduce"),
        ("lightning", "sharded", "'lightning'", SHARDS),
        ("deepspeed", "trains", "True, 2", "all_reduce"),
    ],
)
def test_frameworks_train_one_model_on_a_device_of_any_name(
    framework, function, arguments, used, sim, tmp_path
):
    needs(framework)
    trains(tmp_path, f"test_integration_{framework}", function, arguments, used)

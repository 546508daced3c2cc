"""hccl_like.integrations.ray: Ray Train on a device that Ray does not know."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from integrations import alone, needs, same_parameters, TOLERANCE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sim")]


@pytest.fixture(autouse=True)
def ray():
    needs("ray")


PROGRAM = """
import sys
{line}
import ray.train.torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def loop(config):
    import torch, torch.distributed as dist
    from integrations import calls, weights
    from training import STEPS, batch, descent, loss_of, model

    device = ray.train.torch.get_device()
    wrapped = ray.train.torch.prepare_model(model("cpu"))
    optimiser = descent(wrapped.parameters())
    for step in range(STEPS):
        x, target = batch(step, dist.get_rank(), device)
        optimiser.zero_grad()
        loss_of(wrapped(x), target).backward()
        optimiser.step()
    result = weights(wrapped), str(device), dict(calls()), dist.get_backend()
    torch.save(result, f"{{config['folder']}}/{{dist.get_rank()}}.pt")
    ray.train.report({{}})

ray.init(include_dashboard=False, num_cpus=2)
TorchTrainer(loop, train_loop_config={{"folder": sys.argv[1]}},
             scaling_config=ScalingConfig(num_workers=2),
             run_config=RunConfig(storage_path=sys.argv[1])).fit()
"""


def trained(folder, line):
    """What each worker saved, and what the program said."""
    (folder / "program.py").write_text(PROGRAM.format(line=line))
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, folder / "program.py", folder],
        capture_output=True,
        text=True,
        timeout=400,
        env={
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": path,
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [
        torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)
    ], done.stdout + done.stderr


def test_workers_train_one_model(tmp_path):
    results, said = trained(tmp_path, "import hccl_like.integrations.ray")
    assert "HCCL_LIKE_INTEGRATIONS" not in said
    for rank, (got, device, made, backend) in enumerate(results):
        assert device == f"sim:{rank}" and backend == "hccl-like" and made["all_reduce"] > 0
        same_parameters(got, results[0][0])
        same_parameters(got, alone(2), **TOLERANCE)


def test_without_the_line_workers_take_the_cpu_and_gloo_and_are_warned(tmp_path):
    results, said = trained(tmp_path, "")
    assert all(
        (device, made, backend) == ("cpu", {}, "gloo") for _, device, made, backend in results
    )
    assert "ray does not know the device 'sim'" in said

"""hccl_like.integrations.deepspeed: DeepSpeed's stages of ZeRO on a device that it does not
know.
"""

import importlib
import os
import socket
import subprocess
import sys

import pytest
import torch

from integrations import (
    RANKS,
    are_as_of_one_process,
    begun,
    calls,
    is_warned_of,
    launched,
    needs,
    same_parameters,
)
from training import BATCH, STEPS, batch, descent, loss_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sim")]


@pytest.fixture(autouse=True)
def deepspeed():
    needs("deepspeed")


def trains(with_line, stage, dtype=torch.float32, after=False):
    if with_line and not after:
        importlib.import_module("hccl_like.integrations.deepspeed")
    import deepspeed

    if after:
        importlib.import_module("hccl_like.integrations.deepspeed")
    deepspeed.init_distributed()
    plain = begun()
    engine, optimiser, *_ = deepspeed.initialize(
        model=plain,
        optimizer=descent(plain.parameters()),
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "bf16": {"enabled": dtype == torch.bfloat16},
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
        },
    )
    for step in range(STEPS):
        x, target = batch(step, engine.global_rank, engine.device, dtype)
        engine.backward(loss_of(engine(x), target))
        engine.step()
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        state = [
            parameter.detach().float().cpu().clone() for parameter in engine.module.parameters()
        ]
    return state, str(engine.device), calls()


@pytest.mark.parametrize(
    "stage, used",
    [
        (0, "all_reduce"),
        (1, "all_reduce"),
        pytest.param(2, "all_reduce", marks=pytest.mark.quick),
        (3, "_all_gather_base"),
    ],
)
def test_ranks_train_one_model(stage, used):
    are_as_of_one_process(launched(trains, True, stage), used)


def test_the_line_may_come_after_deepspeed():
    are_as_of_one_process(launched(trains, True, 1, torch.float32, True))


@pytest.mark.parametrize("stage", [2, 3])
def test_bf16(stage):
    (first, _), (second, _) = launched(trains, True, stage, torch.bfloat16)
    assert (first[1], second[1]) == ("sim:0", "sim:1") and first[2].total() > 0
    same_parameters(first[0], second[0])
    assert all(not torch.equal(one, before) for one, before in zip(first[0], begun().parameters()))


def test_without_the_line_deepspeed_takes_the_cpu_and_gloo_and_is_warned_of(tmp_path):
    # DeepSpeed compiles an operator for gloo. A compiler that is killed would leave a lock in the user's folder, for which all wait.
    results = launched(trains, False, 1, timeout=600, environment=lambda rank: {"TORCH_EXTENSIONS_DIR": str(tmp_path)})
    assert [device for (_, device, _), _ in results] == ["cpu"] * RANKS
    assert all(not made for (_, _, made), _ in results)
    is_warned_of(results, "deepspeed")


def uses_a_kernel():
    importlib.import_module("hccl_like.integrations.deepspeed")
    import deepspeed

    deepspeed.init_distributed()
    with pytest.raises(RuntimeError, match='no kernels of FusedAdamBuilder .*"torch_adam": true'):
        deepspeed.initialize(
            model=begun(),
            config={
                "train_micro_batch_size_per_gpu": 1,
                "optimizer": {"type": "Adam", "params": {"lr": 0.1}},
            },
        )


def test_an_optimizer_with_kernels_for_other_devices_is_refused_with_what_to_do():
    launched(uses_a_kernel)


PROGRAM = """
import deepspeed, torch

deepspeed.init_distributed()
model = torch.nn.Linear(3, 3)
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters()), config={"train_batch_size": 2}
)
where = f"on {engine.device} over {torch.distributed.get_backend()}"
print(f"rank {engine.global_rank} of {engine.world_size} {where}", flush=True)
"""


def test_the_launcher_of_deepspeed_starts_a_process_for_each_device(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "deepspeed.launcher.runner",
            "--num_gpus",
            "2",
            "--master_port",
            str(port),
            tmp_path / "program.py",
        ],
        env={**os.environ, "HCCL_LIKE_INTEGRATIONS": "deepspeed", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert all(
        f"rank {rank} of 2 on sim:{rank} over hccl-like" in done.stdout for rank in range(2)
    ), done.stdout

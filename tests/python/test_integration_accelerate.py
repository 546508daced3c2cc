"""hccl_like.integrations.accelerate: Accelerate and Transformers' Trainer on a device that they do
not know.
"""

import importlib
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from integrations import (
    are_as_of_one_process,
    are_separate,
    begun,
    calls,
    is_warned_of,
    launched,
    needs,
    same_parameters,
    weights,
    TOLERANCE,
)
from training import STEPS, batch, descent, loss_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sim")]


@pytest.fixture(autouse=True)
def accelerate():
    needs("accelerate")


def trains(with_line, plugin=None, **how):
    """The program of a user, which names neither the device nor the backend."""
    if with_line:
        importlib.import_module("hccl_like.integrations.accelerate")
    import accelerate
    from accelerate.state import DistributedType

    if plugin:
        how["fsdp_plugin"] = accelerate.FullyShardedDataParallelPlugin(**plugin)
    accelerator = accelerate.Accelerator(**how)
    rank = int(os.environ["RANK"])
    plain = begun()
    if plugin and plugin["fsdp_version"] == 2:
        wrapped, optimiser = accelerator.prepare(plain, descent(plain.parameters()))
    else:
        wrapped = accelerator.prepare(plain)
        optimiser = accelerator.prepare(descent(wrapped.parameters()))
    for step in range(STEPS):
        x, target = batch(step, rank, accelerator.device)
        optimiser.zero_grad()
        accelerator.backward(loss_of(wrapped(x), target))
        optimiser.step()
    state = accelerator.get_state_dict(wrapped)
    if with_line and plugin:
        assert accelerator.distributed_type == DistributedType.FSDP
        # Rank 0 alone has what FSDP1 gathers.
        state = accelerate.utils.broadcast_object_list(
            [{name: value.cpu() for name, value in state.items()}]
        )[0]
    assert accelerator.process_index == (rank if with_line else 0)
    return [value.detach().cpu() for value in state.values()], str(accelerator.device), calls()


@pytest.mark.quick
def test_ranks_train_one_model(sim):
    are_as_of_one_process(launched(trains, True))


def test_without_the_line_each_rank_trains_its_own_and_is_warned(sim):
    are_separate(launched(trains, False), "accelerate")


def test_the_switch_leaves_accelerate_as_it_is(sim):
    (first, _), (second, _) = launched(_switched_off, environment={"HCCL_LIKE_INTEGRATIONS": "0"})
    assert first[1] == second[1] == "cpu" and not torch.equal(first[0][0], second[0][0])


def _switched_off():
    importlib.import_module("hccl_like.integrations.accelerate")
    return trains(False)


@pytest.mark.parametrize(
    "plugin",
    [
        {"fsdp_version": 2, "auto_wrap_policy": "no_wrap"},
        {
            "fsdp_version": 1,
            "sync_module_states": True,
            "auto_wrap_policy": "no_wrap",
            "state_dict_type": "FULL_STATE_DICT",
        },
    ],
    ids=["fsdp2", "fsdp1"],
)
def test_ranks_train_a_sharded_model(sim, plugin):
    are_as_of_one_process(launched(trains, True, plugin), "_reduce_scatter_base")


def autocasts():
    importlib.import_module("hccl_like.integrations.accelerate")
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16")
    with accelerator.autocast():
        return nn.functional.linear(
            *(torch.ones(2, 2, device=accelerator.device) for _ in range(2))
        ).dtype


def test_bf16_is_autocast_on_the_device(sim):
    assert [dtype for dtype, _ in launched(autocasts)] == [torch.bfloat16] * 2


def asks_for_the_cpu():
    from accelerate import Accelerator

    return str(Accelerator(cpu=True).device)


def test_a_program_that_wants_the_cpu_is_not_warned(sim):
    assert [(torch.device(device).type, told) for device, told in launched(asks_for_the_cpu)] == [
        ("cpu", [])
    ] * 2


class Model(nn.Module):
    """As Transformers' models: the loss comes with the output."""

    def __init__(self):
        super().__init__()
        self.layers = begun()

    def forward(self, x, labels):
        return {"loss": loss_of(self.layers(x), labels)}


def fits(with_line, folder, examples, bf16=False):
    """Transformers' Trainer."""
    if with_line:
        importlib.import_module("hccl_like.integrations.accelerate")
    from transformers import Trainer, TrainingArguments

    given = TrainingArguments(
        output_dir=folder,
        num_train_epochs=1,
        per_device_train_batch_size=examples,
        learning_rate=0.125,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1,
        bf16=bf16,
    )
    data = [
        {"x": x, "labels": target} for step in range(4) for x, target in zip(*batch(step, 0, "cpu"))
    ]
    trainer = Trainer(model=Model(), args=given, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return weights(trainer.model), str(given.device), calls(), losses


def test_the_trainer_of_transformers_trains_as_one_process_does(sim, tmp_path):
    needs("transformers", "accelerate")
    ((one, _),) = launched(fits, True, tmp_path, 12, ranks=1)
    assert one[1] == "sim:0"
    for rank, ((got, device, made, losses), told) in enumerate(launched(fits, True, tmp_path, 6)):
        assert device == f"sim:{rank}" and made["all_reduce"] > 0 and told == []
        same_parameters(got, one[0], **TOLERANCE)
        assert losses == pytest.approx(one[3], abs=1e-4)


def test_the_trainer_trains_in_bf16(sim, tmp_path):
    needs("transformers", "accelerate")
    (first, _), (second, _) = launched(fits, True, tmp_path, 6, True)
    same_parameters(first[0], second[0])
    assert first[1] == "sim:0" and second[1] == "sim:1"


def test_without_the_line_the_trainer_is_warned_of(sim, tmp_path):
    needs("transformers", "accelerate")
    is_warned_of(launched(fits, False, tmp_path, 6), "accelerate")


PROGRAM = """
from accelerate import Accelerator
import torch, torch.distributed as dist

accelerator = Accelerator()
total = accelerator.reduce(torch.ones(1, device=accelerator.device))
print("total", total.item(), accelerator.device, dist.get_backend())
"""


def test_accelerate_launch_starts_every_process(sim, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "accelerate.commands.accelerate_cli",
            "launch",
            "--main_process_port",
            "0",
            "--num_processes",
            "2",
            tmp_path / "program.py",
        ],
        env={
            **os.environ,
            "HCCL_LIKE_INTEGRATIONS": "accelerate",
            "OMP_NUM_THREADS": "1",
            "HF_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if "total" in line) == [
        f"total 2.0 sim:{rank} hccl-like" for rank in range(2)
    ]

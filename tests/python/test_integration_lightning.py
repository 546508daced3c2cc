"""hccl_like.integrations.lightning: Fabric and Trainer on a device that they do not know."""

import importlib
import logging
import os

import pytest
import torch
from torch import nn

from integrations import are_as_of_one_process, begun, calls, is_warned_of, launched, needs, weights
from training import LEARNING_RATE, STEPS, batch, descent, loss_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sim")]


@pytest.fixture(autouse=True, params=["lightning", "pytorch_lightning"])
def packages(request):
    """Lightning comes as one package, and as two."""
    needs(request.param, "lightning")
    return request.param


def imported(packages, part, with_line=True):
    if with_line:
        importlib.import_module("hccl_like.integrations.lightning")
    names = {
        "lightning": ("lightning.fabric", "lightning.pytorch"),
        "pytorch_lightning": ("lightning_fabric", "pytorch_lightning"),
    }
    for logger in names[packages]:
        logging.getLogger(logger).setLevel(logging.ERROR)
    return importlib.import_module(names[packages][part])


def fabric_trains(packages, with_line=True, accelerator="auto", strategy="ddp", **how):
    fabric = imported(packages, 0, with_line).Fabric(
        accelerator=accelerator, devices=2, strategy=strategy, **how
    )
    fabric.launch()
    plain = begun()
    wrapped, optimiser = fabric.setup(plain, descent(plain.parameters()))
    for step in range(STEPS):
        x, target = batch(step, fabric.global_rank, fabric.device)
        optimiser.zero_grad()
        fabric.backward(loss_of(wrapped(x), target))
        optimiser.step()
    return weights(wrapped), str(fabric.device), calls()


@pytest.mark.parametrize("accelerator", [pytest.param("auto", marks=pytest.mark.quick), "sim"])
def test_fabric_trains_one_model(packages, accelerator):
    are_as_of_one_process(launched(fabric_trains, packages, True, accelerator))


def test_without_the_line_fabric_trains_on_the_cpu_and_is_warned_of(packages):
    results = launched(fabric_trains, packages, False)
    assert [device for (_, device, _), _ in results] == ["cpu", "cpu"]
    assert all(not made for (_, _, made), _ in results), "over gloo"
    is_warned_of(results, "lightning")


def refused(packages, accelerator):
    with pytest.raises(ValueError) as raised:
        imported(packages, 0, False).Fabric(accelerator=accelerator, devices=2)
    return str(raised.value)


def test_without_the_line_lightning_does_not_know_the_name(packages):
    assert "invalid accelerator name" in launched(refused, packages, "sim", ranks=1)[0][0]


def no_such_device(packages):
    with pytest.raises(ValueError, match="there is no device sim:99; there are 8"):
        imported(packages, 0).Fabric(accelerator="sim", devices=[0, 99])


def test_a_device_that_is_not_there_is_told(packages):
    launched(no_such_device, packages, ranks=1)


def on_the_cpu(packages):
    return str(imported(packages, 0, False).Fabric(accelerator="cpu", devices=1).device)


def test_a_program_that_wants_the_cpu_is_not_warned(packages):
    assert launched(on_the_cpu, packages, ranks=1) == [("cpu", [])]


def autocasts(packages, precision, devices):
    fabric = imported(packages, 0).Fabric(devices=devices, precision=precision)
    fabric.launch()
    with fabric.autocast():
        return nn.functional.linear(
            *(torch.ones(2, 2, device=fabric.device) for _ in range(2))
        ).dtype, str(fabric.device)


@pytest.mark.parametrize(
    "precision, dtype", [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)]
)
def test_mixed_precision_autocasts_on_the_device_of_one_process(packages, precision, dtype):
    assert launched(autocasts, packages, precision, [3], ranks=1)[0][0] == (dtype, "sim:3")


def fits(packages, with_line, folder, accelerator="auto", precision=None):
    pytorch = imported(packages, 1, with_line)

    class Model(pytorch.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers, self.dtypes = begun(), set()

        def training_step(self, examples, step):
            output = self.layers(examples[0])
            self.dtypes.add(output.dtype)
            return loss_of(output, examples[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=LEARNING_RATE)

    rank = int(os.environ["RANK"])
    data = torch.utils.data.DataLoader(
        [batch(step, rank, "cpu") for step in range(STEPS)], batch_size=None
    )
    trainer = pytorch.Trainer(
        accelerator=accelerator,
        devices=2,
        max_epochs=1,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        precision=precision,
    )
    module = Model()
    used = []
    module.on_train_end = lambda: used.append(calls())
    trainer.fit(module, data)
    return weights(module), str(trainer.strategy.root_device), used[0], module.dtypes


def without_dtypes(results):
    return [(result[:3], told) for result, told in results]


@pytest.mark.parametrize("accelerator", ["auto", "sim"])
def test_the_trainer_trains_one_model(packages, tmp_path, accelerator):
    are_as_of_one_process(without_dtypes(launched(fits, packages, True, tmp_path, accelerator)))


def test_the_trainer_autocasts(packages, tmp_path):
    for (_, device, made, dtypes), _ in launched(
        fits, packages, True, tmp_path, "auto", "bf16-mixed"
    ):
        assert device.startswith("sim:") and made["all_reduce"] > 0 and dtypes == {torch.bfloat16}


def test_without_the_line_the_trainer_trains_on_the_cpu_and_is_warned_of(packages, tmp_path):
    results = launched(fits, packages, False, tmp_path)
    assert [result[1] for result, _ in results] == ["cpu", "cpu"]
    is_warned_of(results, "lightning")


def sharded(packages):
    """ModelParallelStrategy with FSDP2."""
    from torch.distributed.fsdp import fully_shard

    fabric_package = imported(packages, 0)
    strategies = importlib.import_module(fabric_package.__name__ + ".strategies")

    def parallelize(model, mesh):
        for layer in (model,):
            fully_shard(layer, mesh=mesh["data_parallel"])
        return model

    strategy = strategies.ModelParallelStrategy(
        parallelize, data_parallel_size=2, tensor_parallel_size=1
    )
    fabric = fabric_package.Fabric(devices=2, strategy=strategy)
    fabric.launch()
    wrapped = fabric.setup_module(begun())
    optimiser = fabric.setup_optimizers(descent(wrapped.parameters()))
    for step in range(STEPS):
        x, target = batch(step, fabric.global_rank, fabric.device)
        optimiser.zero_grad()
        fabric.backward(loss_of(wrapped(x), target))
        optimiser.step()
    return (
        [parameter.full_tensor().detach().cpu() for parameter in wrapped.parameters()],
        str(fabric.device),
        calls(),
    )


def test_fabric_trains_a_sharded_model(packages):
    are_as_of_one_process(launched(sharded, packages), "_reduce_scatter_base")

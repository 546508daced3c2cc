"""Training and checkpoints on devices that lack what real ones lack, without a plugin, with the results of the CPU."""

import copy
import sys

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import training
from ranks import RankFailed
from test_staged_calls import DEVICES, IN_SLICES, Bare, staged, untold

KINDS = DEVICES | {"no resizing": {"TORCH_SIM_FLAWS": "no-resize"}}


def on(kind, function, *arguments):
    staged(member, 2, function, kind, arguments, environment=IN_SLICES | KINDS[kind])


def member(rank, size, function, kind, arguments):
    if "nothing" in kind:
        torch.sim = sys.modules["torch.sim"] = Bare
        torch._C._get_accelerator = untold
    return function(rank, *arguments)


def exact(got, expected):
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)


# ---------------------------------------------------------------------------------------------- DistributedDataParallel


def data_parallel(rank, as_views):
    wrapped = DistributedDataParallel(training.model("sim"), gradient_as_bucket_view=as_views, bucket_cap_mb=0.001)
    training.train(wrapped, "sim")
    training.same_parameters([p.cpu() for p in wrapped.parameters()], training.train_alone("cpu", 2).parameters())


class Forked(nn.Module):
    """Rank 1 leaves out one layer, all leave out another."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second, self.never = nn.Linear(13, 17), nn.Linear(17, 17), nn.Linear(17, 3)
        self.last = nn.Linear(17, 5)

    def forward(self, x, rank):
        x = self.first(x).relu()
        return self.last(self.second(x).tanh() if rank == 0 else x)


def layers_unused(rank, as_views, **options):
    plain = Forked()
    wrapped = DistributedDataParallel(copy.deepcopy(plain).to("sim"), gradient_as_bucket_view=as_views, **options)
    for step in range(training.STEPS):
        for model, ranks, device in ((wrapped, [rank], "sim"), (plain, [0, 1], "cpu")):
            model.zero_grad()
            for r in ranks:
                x, target = training.batch(step, r, device)
                (training.loss_of(model(x, r), target) / len(ranks)).backward()
        for (name, got), expected in zip(wrapped.module.named_parameters(), plain.parameters()):
            if "never" in name:
                assert expected.grad is None and (got.grad is None or got.grad.eq(0).all())
            else:
                exact(got.grad, expected.grad)


def unused_layers(rank):
    layers_unused(rank, False, find_unused_parameters=True)
    layers_unused(rank, True, find_unused_parameters=True)
    layers_unused(rank, False, static_graph=True)


# ----------------------------------------------------------------------------------------------------------- fully_shard


def fsdp(rank):
    mesh = init_device_mesh("sim", (2,))
    wrapped = training.model("sim")
    for layer in wrapped:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(wrapped, mesh=mesh)
    training.train(wrapped, "sim")
    expected = training.train_alone("cpu", 2)
    training.same_parameters([p.full_tensor().cpu() for p in wrapped.parameters()], expected.parameters())


# --------------------------------------------------------------------------------------------------------------- DTensor


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.up, self.down = nn.Linear(12, 22), nn.Linear(22, 12)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


def tensor_parallel_step(device):
    """Parameters after a step."""
    mesh = init_device_mesh(device, (2,))
    cut = parallelize_module(Block().to(device), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    x = torch.randn(7, 12, generator=torch.Generator().manual_seed(1)).to(device)
    cut(x).square().mean().backward()
    training.descent(cut.parameters()).step()
    return [p.full_tensor().cpu() if isinstance(p, DTensor) else p.cpu() for p in cut.parameters()]


def dtensor(rank):
    training.same_parameters(tensor_parallel_step("sim"), tensor_parallel_step("cpu"))
    whole = torch.arange(7.0 * 5).view(7, 5)
    mesh = init_device_mesh("sim", (2,))
    rows = distribute_tensor(whole.to("sim"), mesh, [Shard(0)])
    exact(rows.redistribute(placements=[Shard(1)]).to_local(), whole.chunk(2, 1)[rank])
    exact((rows * 2).redistribute(placements=[Replicate()]).to_local(), whole * 2)


# ----------------------------------------------------------------------------------------------------------- checkpoints


def saved_and_loaded(rank, folder):
    mesh = init_device_mesh("sim", (2,))
    whole = torch.arange(50_000.0).view(250, 200)

    def state(fill, placement):
        return {
            "sharded": distribute_tensor((whole * fill).to("sim"), mesh, [placement]),
            "half": torch.full((7,), 2.5 * fill, dtype=torch.bfloat16, device="sim"),
            "host": torch.full((3,), 4 * fill),
            f"own of {rank}": torch.full((2,), float(rank + 1) * fill, device="sim"),
        }

    def check(folder):
        loaded = state(0, Shard(1))
        checkpoint.load(loaded, checkpoint_id=folder)
        exact(loaded["sharded"].full_tensor(), whole)
        exact(loaded["half"], torch.full((7,), 2.5, dtype=torch.bfloat16))
        exact(loaded["host"], torch.full((3,), 4))
        exact(loaded[f"own of {rank}"], torch.full((2,), float(rank + 1)))

    checkpoint.save(state(1, Shard(0)), checkpoint_id=folder + "/now")
    check(folder + "/now")
    checkpoint.async_save(state(1, Shard(0)), checkpoint_id=folder + "/later").result()
    check(folder + "/later")


# ----------------------------------------------------------------------------------------------------------------- tests


def everything(rank, folder):
    for as_views in (False, True):
        data_parallel(rank, as_views)
    dtensor(rank)
    saved_and_loaded(rank, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_checkpoints_are_exact_with(kind, sim, tmp_path):
    on(kind, everything, str(tmp_path))


# What torch itself asks of a device, in its words; docs/devices.md has the table.
UNABLE = {
    (unused_layers, "no pinned memory"): "RuntimeError: sim: there is no pinned memory",
    (unused_layers, "nothing but copies"): "RuntimeError: sim: there is no pinned memory",
    (fsdp, "no streams, no events"): "RuntimeError: Backend doesn't support events.",
    (fsdp, "nothing but copies"): "AttributeError: type object 'Bare' has no attribute 'current_device'",
    (fsdp, "no resizing"): "RuntimeError: sim: storages cannot be resized",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", [unused_layers, fsdp], ids=lambda what: what.__name__)
def test_what_torch_asks_more_for_is_exact_or_refused_by_torch(what, kind, sim):
    if sentence := UNABLE.get((what, kind)):
        with pytest.raises(RankFailed) as failed:
            on(kind, what)
        assert sentence in str(failed.value)
    else:
        on(kind, what)

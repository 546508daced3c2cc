"""Checkpoints between kinds of parallelism and numbers of ranks: what one kind saved, every other loads and trains on."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import training
from training import on_ranks

# A product of parts adds in another order, and AdamW divides by the root of what was added.
IN_ANOTHER_ORDER = {"rtol": 1e-4, "atol": 1e-6}
# Keys that name a parameter, not its place in a list: stages of a pipeline each have an optimiser of their own.
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
FLAT_AND_FULL = StateDictOptions(flatten_optimizer_state_dict=True, full_state_dict=True)

# ------------------------------------------------------------------------------------------------- kinds of parallelism


def alone(plain, device):
    return plain


def ddp(plain, device):
    return DistributedDataParallel(plain)


def fsdp1(plain, device, **options):
    policy = ModuleWrapPolicy({nn.Linear})
    return FullyShardedDataParallel(plain, device_id=device, auto_wrap_policy=policy, use_orig_params=True, **options)


def fsdp1_hybrid(plain, device):
    mesh = init_device_mesh(device.type, (2, 2))
    return fsdp1(plain, device, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)


def shard(plain, mesh):
    for layer in plain.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(plain, mesh=mesh)


def fsdp2(plain, device):
    return shard(plain, init_device_mesh(device.type, (dist.get_world_size(),)))


def cut(plain, mesh):
    last = ColwiseParallel(output_layouts=Replicate())  # five rows, which no number of ranks here divides
    return parallelize_module(plain, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": last})


def tensor_parallel(plain, device):
    return cut(plain, init_device_mesh(device.type, (dist.get_world_size(),)))


def fsdp2_and_tensor(plain, device):
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("data", "tensor"))
    return shard(cut(plain, mesh["tensor"]), mesh["data"])


class Stage(nn.Sequential):
    """One of two stages of a pipeline: some layers of a model, by their names in the model."""

    def __init__(self, plain, mine):
        super().__init__()
        for name, layer in plain.named_children():
            if int(name) in mine:
                self.add_module(name, layer)

    def connect(self, device, mesh):
        stage = PipelineStage(self, mesh.get_local_rank(), 2, device, group=mesh.get_group())
        self.schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=training.loss_of)
        return self

    def step(self, x, target):
        self.schedule.step(x) if "0" in self._modules else self.schedule.step(target=target)


def pipeline_and_fsdp2(plain, device):
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("pipeline", "data"))
    stage = Stage(plain, range(2) if mesh.get_local_rank("pipeline") == 0 else range(2, 5))
    return shard(stage, mesh["data"]).connect(device, mesh["pipeline"])


KINDS = [
    (alone, 1), (ddp, 2), (fsdp1, 2), (fsdp1_hybrid, 4), (fsdp2, 2), (fsdp2, 3), (tensor_parallel, 2), (tensor_parallel, 3),
    (fsdp2_and_tensor, 4), (pipeline_and_fsdp2, 4),
]  # fmt: skip

# ----------------------------------------------------------------------------------------------- what is done with each


def make(kind, device, blank):
    torch.manual_seed(7)
    # The 24 features between the first two layers divide by two, three and four ranks; TP needs that of them alone.
    plain = nn.Sequential(nn.Linear(13, 24), nn.ReLU(), nn.Linear(24, 19), nn.Tanh(), nn.Linear(19, 5)).to(device)
    if blank:
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter.fill_(3)
    wrapped = kind(plain, device)
    return wrapped, torch.optim.AdamW(wrapped.parameters(), lr=0.01)


def train(wrapped, optimiser, device, steps):
    """All ranks have the same examples, so that any number of them does what one process does."""
    for step in steps:
        x, target = training.batch(step, 0, device)
        optimiser.zero_grad()
        if isinstance(wrapped, Stage):
            wrapped.step(x, target)
        else:
            training.loss_of(wrapped(x), target).backward()
        optimiser.step()


def everything(wrapped, optimiser):
    """What this rank has of parameters and moments, whole and on the host."""
    model, moments = get_state_dict(wrapped, optimiser, options=FLAT_AND_FULL)
    return {name: value.tolist() for name, value in (model | moments).items() if isinstance(value, torch.Tensor)}


def save(device, kind, folder, after=None):
    """Trains from the beginning, or from the checkpoint `after`."""
    wrapped, optimiser = make(kind, device, blank=False)
    if after:
        load_into(wrapped, optimiser, after)
    train(wrapped, optimiser, device, range(2))
    model, moments = get_state_dict(wrapped, optimiser, options=FLAT)
    checkpoint.save({"model": model, "optimiser": moments}, checkpoint_id=folder)
    return everything(wrapped, optimiser)


def load_into(wrapped, optimiser, folder):
    model, moments = get_state_dict(wrapped, optimiser, options=FLAT)
    checkpoint.load({"model": model, "optimiser": moments}, checkpoint_id=folder)
    set_state_dict(wrapped, optimiser, model_state_dict=model, optim_state_dict=moments, options=FLAT)


def load(device, kinds, folder):
    """For each kind: what was loaded, and what it is after one more step."""
    results = []
    for kind in kinds:
        wrapped, optimiser = make(kind, device, blank=True)
        load_into(wrapped, optimiser, folder)
        loaded = everything(wrapped, optimiser)
        train(wrapped, optimiser, device, [2])
        results.append((loaded, everything(wrapped, optimiser)))
    return results


def of_all_ranks(parts):
    """One dictionary; what several ranks have is the same on all of them."""
    whole = {}
    for part in parts:
        assert all(whole.get(name, value) == value for name, value in part.items())
        whole |= part
    assert len(whole) == 6 * (1 + 3)  # step and two moments of each parameter
    return whole


def on_all(function, ranks, device, *arguments):
    return of_all_ranks(on_ranks(function, ranks, device, *arguments))


def near(got, expected):
    assert got.keys() == expected.keys()
    for name, value in got.items():
        torch.testing.assert_close(torch.tensor(value), torch.tensor(expected[name]), **IN_ANOTHER_ORDER)


def loads_everywhere(device, folder, saved, kinds):
    results = {}
    for ranks in sorted({ranks for _, ranks in kinds}):
        mine = [kind for kind, its_ranks in kinds if its_ranks == ranks]
        for kind, *parts in zip(mine, *on_ranks(load, ranks, device, mine, folder)):
            loaded, trained = (of_all_ranks(part) for part in zip(*parts))
            assert loaded == saved, f"{kind.__name__} on {ranks} ranks"
            results[kind, ranks] = trained
    for trained in results.values():
        near(trained, results[alone, 1])


# ------------------------------------------------------------------------------------------------------------ the tests


@pytest.mark.slow
@pytest.mark.parametrize("kind, ranks", KINDS, ids=[f"{kind.__name__}-{ranks}" for kind, ranks in KINDS])
def test_every_kind_loads_what_any_kind_saved(device, kind, ranks, tmp_path):
    saved = on_all(save, ranks, device, kind, str(tmp_path))
    loads_everywhere(device, str(tmp_path), saved, KINDS)


def all_by_one(device, first, second):
    save(device, alone, first)
    return save(device, alone, second, first)


def test_a_training_moves_from_two_to_four_ranks_and_to_one(device, tmp_path):
    """It ends where a training by one process ends."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    on_ranks(save, 2, device, fsdp1, first)
    saved = on_all(save, 4, device, fsdp2_and_tensor, second, first)
    loads_everywhere(device, second, saved, [(alone, 1)])
    near(saved, on_all(all_by_one, 1, device, str(tmp_path / "alone first"), str(tmp_path / "alone")))


@pytest.mark.parametrize("there, here", [("sim", "cpu"), ("cpu", "sim")])
def test_the_device_of_a_checkpoint_does_not_matter(sim, there, here, tmp_path):
    saved = on_all(save, 2, there, fsdp2, str(tmp_path))
    loads_everywhere(here, str(tmp_path), saved, [(alone, 1), (tensor_parallel, 2)])

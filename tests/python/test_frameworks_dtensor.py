"""DTensor and tensor parallelism."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import rand as distributed_rand
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import training
from training import on_ranks

# A sum of products that is cut in two is rounded otherwise than the whole.
CUT_SUM = {"rtol": 1e-5, "atol": 1e-6}


def exact(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def placements(device):
    mesh, rank = init_device_mesh(device.type, (2,)), dist.get_rank()
    whole = torch.arange(7.0 * 5).view(7, 5).to(device)
    by_rows = distribute_tensor(whole, mesh, [Shard(0)])
    exact(by_rows.to_local(), whole.chunk(2)[rank])
    exact(by_rows.full_tensor(), whole)
    by_columns = by_rows.redistribute(placements=[Shard(1)])
    exact(by_columns.to_local(), whole.chunk(2, 1)[rank])
    exact(by_columns.redistribute(placements=[Replicate()]).to_local(), whole)
    parts = DTensor.from_local(whole * (rank + 1), mesh, [Partial()])
    exact(parts.full_tensor(), whole * 3)
    exact(parts.redistribute(placements=[Shard(0)]).to_local(), (whole * 3).chunk(2)[rank])
    mean = DTensor.from_local(whole * (rank + 1), mesh, [Partial("avg")])
    exact(mean.full_tensor(), whole * 1.5)
    largest = DTensor.from_local(whole * (rank + 1), mesh, [Partial("max")])
    exact(largest.full_tensor(), whole * 2)
    exact((by_rows + by_rows).sum().full_tensor(), 2 * whole.sum())
    only_rank_0s = distribute_tensor(whole + rank, mesh, [Replicate()])
    exact(only_rank_0s.to_local(), whole)


def test_placements_change_into_each_other(device):
    on_ranks(placements, 2, device)


def in_two_dimensions(device):
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("outer", "inner"))
    whole = torch.arange(6.0 * 5).view(6, 5).to(device)
    both = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    exact(both.to_local(), whole.chunk(2)[mesh.get_local_rank("outer")].chunk(2, 1)[mesh.get_local_rank("inner")])
    exact(both.full_tensor(), whole)
    twice = distribute_tensor(whole, mesh, [Shard(0), Shard(0)])
    exact(twice.redistribute(placements=[Replicate(), Shard(1)]).full_tensor(), whole)
    outer = distribute_tensor(whole, mesh["outer"], [Shard(0)])
    exact(outer.to_local(), whole.chunk(2)[mesh.get_local_rank("outer")])


@pytest.mark.parametrize("bind", [False, True], ids=["", "with device_id"])
def test_meshes_of_two_dimensions(device, bind):
    if bind and device == "cpu":
        pytest.skip("a group is bound to accelerators only")
    on_ranks(in_two_dimensions, 4, device, bind=bind)


def random_numbers(device):
    """The parts of one tensor differ; what is the same on all ranks is the same; a seed brings all of it back."""
    mesh = init_device_mesh(device.type, (2,))

    def make():
        torch.manual_seed(99)
        parts = distributed_rand((8, 6), device_mesh=mesh, placements=[Shard(0)]).full_tensor()
        same = distributed_rand((8, 6), device_mesh=mesh, placements=[Replicate()]).to_local()
        dropped = nn.functional.dropout(distribute_tensor(torch.ones(8, 6), mesh, [Shard(0)]), 0.5).full_tensor()
        return parts, same, dropped

    parts, same, dropped = make()
    assert not torch.equal(parts[:4], parts[4:])
    exact(same, DTensor.from_local(same / 2, mesh, [Partial()]).full_tensor())
    assert set(dropped.flatten().tolist()) == {0.0, 2.0}
    for first, again in zip((parts, same, dropped), make()):
        exact(first, again)


def test_random_numbers_differ_between_parts_and_agree_between_copies(sim):
    on_ranks(random_numbers, 2, sim)


class Block(nn.Module):
    """What a transformer has between its attentions."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.norm = nn.LayerNorm(12)
        self.up = nn.Linear(12, 22)
        self.down = nn.Linear(22, 12)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def tokens(device, seed=11):
    return torch.randn(3, 10, 12, generator=torch.Generator().manual_seed(seed)).to(device)


def gradients(model):
    return [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]


def tensor_parallel(device):
    mesh, x = init_device_mesh(device.type, (2,)), tokens(device)
    cut = parallelize_module(Block().to(device), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    with CommDebugMode() as communication:
        output = cut(x)
    assert communication.get_total_counts() == 1  # an all_reduce
    output.square().mean().backward()
    plain = Block().to(device)
    expected = plain(x)
    expected.square().mean().backward()
    torch.testing.assert_close(output, expected, **CUT_SUM)
    training.same_parameters(gradients(cut), gradients(plain), **CUT_SUM)


def test_layers_are_cut_by_columns_and_by_rows(device):
    on_ranks(tensor_parallel, 2, device)


def sequence_parallel(device):
    mesh, x = init_device_mesh(device.type, (2,)), tokens(device)
    cut = parallelize_module(Block().to(device), mesh, {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    })  # fmt: skip
    cut(distribute_tensor(x, mesh, [Shard(1)])).square().mean().backward()
    plain = Block().to(device)
    plain(x).square().mean().backward()
    training.same_parameters(gradients(cut), gradients(plain), **CUT_SUM)


def test_sequences_are_cut_between_the_layers(device):
    on_ranks(sequence_parallel, 2, device)


def loss_of_cut_logits(device):
    mesh = init_device_mesh(device.type, (2,))
    torch.manual_seed(6)
    logits, labels = torch.randn(9, 14).to(device), torch.randint(14, (9,)).to(device)
    cut = distribute_tensor(logits, mesh, [Shard(1)]).requires_grad_()
    with loss_parallel():
        loss = nn.functional.cross_entropy(cut, labels)
        loss.backward()
    plain = logits.clone().requires_grad_()
    expected = nn.functional.cross_entropy(plain, labels)
    expected.backward()
    torch.testing.assert_close(loss.full_tensor(), expected, **CUT_SUM)
    torch.testing.assert_close(cut.grad.full_tensor(), plain.grad, **CUT_SUM)


def test_a_loss_is_taken_of_logits_that_are_cut(device):
    on_ranks(loss_of_cut_logits, 2, device)


def cut_and_sharded(device):
    """Tensor parallel in one dimension of the mesh, data parallel in the other."""
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("data", "tensor"))
    cut = parallelize_module(Block().to(device), mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(cut, mesh=mesh["data"])
    cut(tokens(device, seed=mesh.get_local_rank("data"))).square().mean().backward()
    parts = []
    for seed in range(2):
        plain = Block().to(device)
        plain(tokens(device, seed)).square().mean().backward()
        parts.append(gradients(plain))
    training.same_parameters(gradients(cut), [(a + b) / 2 for a, b in zip(*parts)], **CUT_SUM)


@pytest.mark.slow
@pytest.mark.parametrize("bind", [False, True], ids=["", "with device_id"])
def test_tensor_and_data_parallel_together(device, bind):
    if bind and device == "cpu":
        pytest.skip("a group is bound to accelerators only")
    on_ranks(cut_and_sharded, 4, device, bind=bind)

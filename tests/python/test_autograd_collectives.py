"""torch's collectives with gradients, against one process that computes what all ranks would.

Every rank weighs its outputs with whole numbers of its own. The sum over all ranks is what autograd differentiates, here
and there, so gradients are sums of whole numbers and compared exactly.
"""

import warnings
from dataclasses import dataclass
from typing import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as nn

from training import on_ranks


def numbers(rank, shape, salt=0):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * (3 + rank) + salt + 5 * rank) % 11 - 5).to(torch.float32).view(shape)


@dataclass
class Case:
    """`inputs(rank, size)`: shapes. `run(xs, rank, size, device)`: this rank's outputs. `formula(xs_of_ranks, size)`: the
    outputs of each rank. `counts(rank)`: whether a rank's outputs mean anything."""

    name: str
    inputs: Callable
    run: Callable
    formula: Callable
    counts: Callable = lambda rank: True


def parts(tensors, rank):
    return [tensor.chunk(len(tensors))[rank] for tensor in tensors]


ROOT = 1
ROWS, COLUMNS = 6, 3  # rows for two and for three ranks


def empties(device, size, *shape):
    return [torch.empty(shape, device=device) for _ in range(size)]


CASES = [
    Case("nn.broadcast", lambda rank, size: [(4, 3)], lambda xs, *_: [nn.broadcast(xs[0], ROOT)],
         lambda xs, size: [[xs[ROOT][0]]] * size),
    Case("nn.all_reduce", lambda rank, size: [(4, 3)], lambda xs, *_: [nn.all_reduce(xs[0])],
         lambda xs, size: [[sum(x[0] for x in xs)]] * size),
    Case("nn.reduce", lambda rank, size: [(4, 3)], lambda xs, *_: [nn.reduce(xs[0], ROOT)],
         lambda xs, size: [[sum(x[0] for x in xs)]] * size, lambda rank: rank == ROOT),
    Case("nn.gather", lambda rank, size: [(4, 3)], lambda xs, *_: list(nn.gather(xs[0], ROOT)),
         lambda xs, size: [[x[0] for x in xs]] * size, lambda rank: rank == ROOT),
    Case("nn.scatter", lambda rank, size: [(4, 3)] * size, lambda xs, *_: [nn.scatter(xs, ROOT)],
         lambda xs, size: [[xs[ROOT][rank]] for rank in range(size)]),
    Case("nn.all_gather", lambda rank, size: [(4, 3)], lambda xs, *_: list(nn.all_gather(xs[0])),
         lambda xs, size: [[x[0] for x in xs]] * size),
    Case("nn._all_gather_base", lambda rank, size: [(4, 3)],
         lambda xs, rank, size, device: [nn._all_gather_base(torch.empty(4 * size, 3, device=device), xs[0])],
         lambda xs, size: [[torch.cat([x[0] for x in xs])]] * size),
    Case("nn.reduce_scatter", lambda rank, size: [(4, 3)] * size,
         lambda xs, rank, size, device: [nn.reduce_scatter(torch.empty(4, 3, device=device), xs)],
         lambda xs, size: [[sum(x[rank] for x in xs)] for rank in range(size)]),
    Case("nn.all_to_all", lambda rank, size: [(rank + p + 1, 3) for p in range(size)],
         lambda xs, rank, size, device: list(
             nn.all_to_all([torch.empty(rank + p + 1, 3, device=device) for p in range(size)], xs)),
         lambda xs, size: [[x[rank] for x in xs] for rank in range(size)]),
    Case("nn.all_to_all_single", lambda rank, size: [(ROWS, 3)],
         lambda xs, rank, size, device: [nn.all_to_all_single(torch.empty(ROWS, 3, device=device), xs[0])],
         lambda xs, size: [[torch.cat(parts([x[0] for x in xs], rank))] for rank in range(size)]),
    Case("nn.all_to_all_single with splits", lambda rank, size: [(sum(rank + p + 1 for p in range(size)), 2)],
         lambda xs, rank, size, device: [nn.all_to_all_single(
             torch.empty_like(xs[0]), xs[0],
             [rank + p + 1 for p in range(size)], [rank + p + 1 for p in range(size)])],
         lambda xs, size: [[torch.cat([x[0].split([r + p + 1 for p in range(size)])[rank] for r, x in enumerate(xs)])]
                           for rank in range(size)]),
    Case("all_gather_tensor_autograd", lambda rank, size: [(2, 3)],
         lambda xs, *_: [functional.all_gather_tensor_autograd(xs[0], 0, dist.group.WORLD)],
         lambda xs, size: [[torch.cat([x[0] for x in xs])]] * size),
    Case("all_gather_tensor_autograd of columns", lambda rank, size: [(2, 3)],
         lambda xs, *_: [functional.all_gather_tensor_autograd(xs[0], 1, dist.group.WORLD)],
         lambda xs, size: [[torch.cat([x[0] for x in xs], 1)]] * size),
    Case("reduce_scatter_tensor_autograd", lambda rank, size: [(ROWS, 3)],
         lambda xs, *_: [functional.reduce_scatter_tensor_autograd(xs[0], "sum", 0, dist.group.WORLD)],
         lambda xs, size: [[sum(x[0] for x in xs).chunk(size)[rank]] for rank in range(size)]),
    Case("reduce_scatter_tensor_autograd of columns", lambda rank, size: [(2, ROWS)],
         lambda xs, *_: [functional.reduce_scatter_tensor_autograd(xs[0], "sum", 1, dist.group.WORLD)],
         lambda xs, size: [[sum(x[0] for x in xs).chunk(size, 1)[rank]] for rank in range(size)]),
    Case("all_to_all_single_autograd", lambda rank, size: [(ROWS, 3)],
         lambda xs, *_: [functional.all_to_all_single_autograd(xs[0], None, None, dist.group.WORLD)],
         lambda xs, size: [[torch.cat(parts([x[0] for x in xs], rank))] for rank in range(size)]),
    Case("all_to_all_single_autograd with splits", lambda rank, size: [(sum(rank + p + 1 for p in range(size)), 2)],
         lambda xs, rank, size, device: [functional.all_to_all_single_autograd(
             xs[0], [rank + p + 1 for p in range(size)], [rank + p + 1 for p in range(size)], dist.group.WORLD)],
         lambda xs, size: [[torch.cat([x[0].split([r + p + 1 for p in range(size)])[rank] for r, x in enumerate(xs)])]
                           for rank in range(size)]),
    Case("functional.all_reduce", lambda rank, size: [(4, 3)],
         lambda xs, *_: [functional.all_reduce(xs[0], "sum", dist.group.WORLD)],
         lambda xs, size: [[sum(x[0] for x in xs)]] * size),
    Case("functional.all_gather_tensor", lambda rank, size: [(2, 3)],
         lambda xs, *_: [functional.all_gather_tensor(xs[0], 0, dist.group.WORLD)],
         lambda xs, size: [[torch.cat([x[0] for x in xs])]] * size),
    Case("functional.reduce_scatter_tensor", lambda rank, size: [(ROWS, 3)],
         lambda xs, *_: [functional.reduce_scatter_tensor(xs[0], "sum", 0, dist.group.WORLD)],
         lambda xs, size: [[sum(x[0] for x in xs).chunk(size)[rank]] for rank in range(size)]),
    Case("functional.all_to_all_single", lambda rank, size: [(ROWS, 3)],
         lambda xs, *_: [functional.all_to_all_single(xs[0], None, None, dist.group.WORLD)],
         lambda xs, size: [[torch.cat(parts([x[0] for x in xs], rank))] for rank in range(size)]),
    Case("functional.all_reduce_coalesced", lambda rank, size: [(4, 3), (5,)],
         lambda xs, *_: list(functional.all_reduce_coalesced(xs, "sum", dist.group.WORLD)),
         lambda xs, size: [[sum(x[i] for x in xs) for i in range(2)]] * size),
    Case("functional.all_gather_into_tensor_coalesced", lambda rank, size: [(4, 3), (5,)],
         lambda xs, *_: list(functional.all_gather_into_tensor_coalesced(xs, dist.group.WORLD)),
         lambda xs, size: [[torch.cat([x[i] for x in xs]) for i in range(2)]] * size),
    Case("functional.reduce_scatter_tensor_coalesced", lambda rank, size: [(ROWS, 3), (2 * ROWS,)],
         lambda xs, *_: list(
             functional.reduce_scatter_tensor_coalesced(xs, "sum", [0, 0], dist.group.WORLD)),
         lambda xs, size: [[sum(x[i] for x in xs).chunk(size)[rank] for i in range(2)] for rank in range(size)]),
]  # fmt: skip


def leaves(case, rank, size):
    return [numbers(rank, shape, salt=i).requires_grad_() for i, shape in enumerate(case.inputs(rank, size))]


def weights(case, rank, outputs):
    on = 1 if case.counts(rank) else 0
    return [on * numbers(rank + 2, output.shape, salt=7 + i) for i, output in enumerate(outputs)]


def loss_of(outputs, factors):
    return sum((output * factor.to(output.device)).sum() for output, factor in zip(outputs, factors))


def every_case(device):
    warnings.simplefilter("ignore")  # torch.distributed.nn names its successors
    rank, size = dist.get_rank(), dist.get_world_size()
    for case in CASES:
        everyone = [leaves(case, r, size) for r in range(size)]
        expected = case.formula(everyone, size)
        total = sum(loss_of(outputs, weights(case, r, outputs)) for r, outputs in enumerate(expected))
        gradients = torch.autograd.grad(total, everyone[rank], allow_unused=True)

        mine = [x.detach().to(device).requires_grad_() for x in everyone[rank]]
        outputs = case.run(mine, rank, size, device)
        if case.counts(rank):
            for got, wanted in zip(outputs, expected[rank], strict=True):
                assert torch.as_tensor(got).cpu().equal(wanted), f"{case.name} on rank {rank}"
        loss_of(outputs, weights(case, rank, outputs)).backward()
        for x, gradient in zip(mine, gradients):
            wanted = torch.zeros_like(x, device="cpu") if gradient is None else gradient
            got = torch.zeros_like(x) if x.grad is None else x.grad
            assert got.cpu().equal(wanted), f"the gradient of {case.name} on rank {rank}: {got} and not {wanted}"


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_are_those_of_one_process(ranks, device):
    on_ranks(every_case, ranks, device)


def twice(device):
    """Gradients of gradients."""
    warnings.simplefilter("ignore")
    rank, size = dist.get_rank(), dist.get_world_size()
    x = numbers(rank, (4,)).to(device).requires_grad_()
    first = torch.autograd.grad(nn.all_reduce(x * x).sum(), x, create_graph=True)[0]
    assert first.cpu().equal(2 * size * numbers(rank, (4,)))
    second = torch.autograd.grad(first.sum(), x)[0]
    assert second.cpu().equal(torch.full((4,), 2.0 * size))


def test_gradients_of_gradients(device):
    on_ranks(twice, 2, device)

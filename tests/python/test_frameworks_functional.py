"""torch's functional collectives, eager and under torch.compile."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from training import on_ranks


def numbers(device, *shape):
    """Small whole numbers that differ from rank to rank: their sums are exact in any order."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32).view(shape) + 100 * dist.get_rank()).to(device)


def of_every_rank(device, *shape):
    mine = numbers(device, *shape)
    return [mine + 100 * (rank - dist.get_rank()) for rank in range(dist.get_world_size())]


def equal(got, expected):
    torch.testing.assert_close(functional.wait_tensor(got), expected, rtol=0, atol=0)


def every_function(device):
    world, rank, ranks = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    x, all_x = numbers(device, 6, 3), of_every_rank(device, 6, 3)
    total = sum(all_x)
    equal(functional.all_reduce(x, "sum", world), total)
    equal(functional.all_reduce(x, "avg", world), total / ranks)
    equal(functional.all_reduce(x, "max", world), all_x[-1])
    equal(functional.broadcast(x, ranks - 1, world), all_x[-1])
    equal(functional.all_gather_tensor(x, 0, world), torch.cat(all_x, 0))
    equal(functional.all_gather_tensor(x, 1, world), torch.cat(all_x, 1))
    equal(functional.reduce_scatter_tensor(x, "sum", 0, world), total.chunk(ranks)[rank])
    equal(functional.reduce_scatter_tensor(x.t().contiguous(), "avg", 1, world), (total / ranks).t().chunk(ranks, 1)[rank])
    equal(functional.all_to_all_single(x, None, None, world), torch.cat([other.chunk(ranks)[rank] for other in all_x]))
    gives = [1, 5] if rank == 0 else [4, 2]
    takes = [1, 4] if rank == 0 else [5, 2]
    pieces = [other.split([1, 5] if giver == 0 else [4, 2])[rank] for giver, other in enumerate(all_x)]
    equal(functional.all_to_all_single(x, takes, gives, world), torch.cat(pieces))
    equal(functional.permute_tensor(x.flatten(), [1, 0], world), all_x[1 - rank].flatten())
    lists = [x, x[:2, 0].contiguous()]
    for got, expected in zip(functional.all_reduce_coalesced(lists, "sum", world), (total, total[:2, 0])):
        equal(got, expected)
    for got, expected in zip(functional.all_gather_into_tensor_coalesced(lists, world), (all_x, [o[:2, 0] for o in all_x])):
        equal(got, torch.cat(expected))
    for got, expected in zip(functional.reduce_scatter_tensor_coalesced(lists, "sum", [0, 0], world), (total, total[:2, 0])):
        equal(got, expected.chunk(ranks)[rank])


def test_every_function_gives_what_it_should(device):
    on_ranks(every_function, 2, device)


def gradients(device):
    world, ranks, rank = dist.group.WORLD, dist.get_world_size(), dist.get_rank()
    weight = numbers(device, 6 * ranks, 3)

    x = numbers(device, 6, 3).requires_grad_()
    (functional.all_gather_tensor_autograd(x, 0, world) * weight).sum().backward()
    expected = sum(w.chunk(ranks)[rank] for w in of_every_rank(device, 6 * ranks, 3))
    equal(x.grad, expected)

    x = numbers(device, 6 * ranks, 3).requires_grad_()
    (functional.reduce_scatter_tensor_autograd(x, "sum", 0, world) * weight[:6]).sum().backward()
    equal(x.grad, torch.cat([w[:6] for w in of_every_rank(device, 6 * ranks, 3)]))

    x = numbers(device, 6 * ranks, 3).requires_grad_()
    (functional.all_to_all_single_autograd(x, None, None, world) * weight).sum().backward()
    equal(x.grad, torch.cat([w.chunk(ranks)[rank] for w in of_every_rank(device, 6 * ranks, 3)]))


def test_gradients_flow_through_them(device):
    on_ranks(gradients, 2, device)


def compiled(device, compiler):
    world = dist.group.WORLD

    def both(x):
        gathered = functional.all_gather_tensor(x * 2, 0, world)
        return functional.reduce_scatter_tensor(gathered, "sum", 0, world) + functional.all_reduce(x, "sum", world)

    x = numbers(device, 6, 3)
    equal(torch.compile(both, backend=compiler, fullgraph=True)(x), both(x))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_they_can_be_compiled(device, compiler):
    on_ranks(compiled, 2, device, compiler)


def in_the_other_style(device):
    """torch.distributed's own functions inside a compiled one become functional collectives."""

    def both(x):
        gathered = torch.empty(12, 3, device=x.device)
        dist.all_gather_into_tensor(gathered, x * 2)
        dist.all_reduce(gathered)
        return gathered

    x = numbers(device, 6, 3)
    equal(torch.compile(both, backend="aot_eager", fullgraph=True)(x), both(x))


@pytest.mark.slow
def test_the_ordinary_collectives_can_be_compiled(device):
    on_ranks(in_the_other_style, 2, device)

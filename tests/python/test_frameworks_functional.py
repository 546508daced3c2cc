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


def ways_to_name_a_group(device):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(device.type, (2, 1), mesh_dim_names=("a", "b"))
    x = numbers(device, 5)
    total = sum(of_every_rank(device, 5))
    for group in (dist.group.WORLD, [0, 1], mesh["a"], (mesh, 0), dist.group.WORLD.group_name):
        equal(functional.all_reduce(x, "sum", group), total)
    equal(functional.all_reduce(x, "sum", (mesh, 1)), x)


def test_a_group_may_be_named_in_every_way(device):
    on_ranks(ways_to_name_a_group, 2, device)


def in_place(device):
    name, ranks, rank = dist.group.WORLD.group_name, dist.get_world_size(), dist.get_rank()
    ops = torch.ops._c10d_functional
    everyone = of_every_rank(device, 6, 3)
    total = sum(everyone)

    x = numbers(device, 6, 3)
    version = x._version
    result = ops.wait_tensor(ops.all_reduce_(x, "sum", name))
    assert result.data_ptr() == x.data_ptr() and x.equal(total) and x._version >= version
    x = numbers(device, 6, 3)
    ops.wait_tensor(ops.broadcast_(x, 1, name))
    assert x.equal(everyone[1])
    several = [numbers(device, 6, 3), numbers(device, 6, 3)[0].contiguous()]
    for tensor in ops.all_reduce_coalesced_(several, "max", name):
        ops.wait_tensor(tensor)
    assert several[0].equal(everyone[-1]) and several[1].equal(everyone[-1][0])
    gathered = torch.empty(6 * ranks, 3, device=device)
    ops.wait_tensor(ops.all_gather_into_tensor_out(numbers(device, 6, 3), ranks, name, out=gathered))
    assert gathered.equal(torch.cat(everyone))
    scattered = torch.empty(3, 3, device=device)
    ops.wait_tensor(ops.reduce_scatter_tensor_out(numbers(device, 6, 3), "sum", ranks, name, out=scattered))
    assert scattered.equal(total.chunk(ranks)[rank])
    functional.all_gather_tensor_inplace(gathered.zero_(), numbers(device, 6, 3), dist.group.WORLD)
    assert gathered.equal(torch.cat(everyone))
    functional.reduce_scatter_tensor_inplace(scattered.zero_(), numbers(device, 6, 3), group=dist.group.WORLD)
    assert scattered.equal(total.chunk(ranks)[rank])
    x = numbers(device, 6, 3)
    functional.all_reduce_inplace(x, group=dist.group.WORLD)
    assert x.equal(total)


def test_in_place_forms(device):
    on_ranks(in_place, 2, device)


def waits_when_used(device):
    """The result of a functional collective waits for itself when something is computed with it."""
    x, everyone = numbers(device, 6, 3), of_every_rank(device, 6, 3)
    result = functional.all_reduce(x, "sum", dist.group.WORLD)
    assert isinstance(result, functional.AsyncCollectiveTensor)
    view = result.view(-1)[3:]
    assert not result.completed, "a view needs no data"
    assert (view * 2).cpu().equal(2 * sum(everyone).view(-1)[3:].cpu())
    assert functional.all_reduce(x, "sum", dist.group.WORLD).tolist() == sum(everyone).tolist()
    assert functional.wait_tensor(functional.wait_tensor(result)).equal(sum(everyone)), "waiting twice does no harm"
    # Dropped without a wait: the next call must not mind, nor the end of the group.
    for _ in range(5):
        functional.all_reduce(x, "sum", dist.group.WORLD)
    torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name)
    equal(functional.all_reduce(x, "sum", dist.group.WORLD), sum(everyone))


def test_results_wait_for_themselves(device):
    on_ranks(waits_when_used, 2, device)


def in_the_order_of_streams(device):
    from streams import Gate

    x = torch.zeros(1000, device=device)
    reader = torch.sim.Stream(device)
    torch.sim.synchronize(device)
    gate = Gate(torch.sim.current_stream(device))
    x.fill_(dist.get_rank() + 1)
    result = torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name)
    copy = torch.empty_like(x)
    with torch.sim.stream(reader):
        copy.copy_(torch.ops._c10d_functional.wait_tensor(result))
    gate.require_closed("a functional collective")
    gate.open()
    reader.synchronize()
    assert copy.eq(3).all()


def test_they_keep_the_order_of_streams(sim):
    on_ranks(in_the_order_of_streams, 2, sim)


def traced(device):
    """Tools that look at collectives without running them, or while they run, know ours."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.fx.experimental.proxy_tensor import make_fx

    world, x = dist.group.WORLD, numbers(device, 6, 3)

    def function(x):
        gathered = functional.wait_tensor(functional.all_gather_tensor(x, 0, world))
        return functional.wait_tensor(functional.reduce_scatter_tensor(gathered, "sum", 0, world))

    with CommDebugMode() as counted:
        function(x)
        functional.wait_tensor(functional.all_reduce(x, "sum", world))
        dist.all_reduce(x.clone())
    assert counted.get_total_counts() == 4
    assert counted.get_comm_counts()[torch.ops.c10d_functional.all_gather_into_tensor] == 1
    assert counted.get_comm_counts()[torch.ops.c10d_functional.reduce_scatter_tensor] == 1

    graph = make_fx(function)(x)
    equal(graph(x), function(x))
    names = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert torch.ops._c10d_functional.all_gather_into_tensor.default in names

    sequence = world._get_backend(x.device)._get_sequence_number_for_group()
    with FakeTensorMode() as mode:
        fake = function(mode.from_tensor(x))
    assert fake.shape == x.shape and fake.device == x.device
    assert world._get_backend(x.device)._get_sequence_number_for_group() == sequence, "nothing was sent"


def test_tracing_and_counting(device):
    on_ranks(traced, 2, device)


def blocks(device):
    world, rank, ranks = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    everyone = of_every_rank(device, 4)
    for asynchronous in (False, True):
        tensors = [numbers(device, 4 + i) for i in range(3)]
        with dist._coalescing_manager(device=device, async_ops=asynchronous) as block:
            for tensor in tensors:
                dist.all_reduce(tensor)
        if asynchronous:
            block.wait()
        for i, tensor in enumerate(tensors):
            equal(tensor, sum(of_every_rank(device, 4 + i)))
    # Calls of different kinds, and messages, in one block of the group's own.
    given, taken = numbers(device, 4), torch.zeros(4, device=device)
    gathered, summed = torch.zeros(4 * ranks, device=device), numbers(device, 4)
    world._start_coalescing(device)
    dist.all_gather_into_tensor(gathered, given)
    dist.isend(given, (rank + 1) % ranks)
    dist.irecv(taken, (rank - 1) % ranks)
    dist.all_reduce(summed)
    work = world._end_coalescing(device)
    work.wait()
    assert gathered.equal(torch.cat(everyone)) and summed.equal(sum(everyone)) and taken.equal(everyone[rank - 1])
    # An empty block is no call.
    with dist._coalescing_manager(device=device, async_ops=True) as block:
        pass
    block.wait()
    dist.all_reduce(summed)


@pytest.mark.parametrize("ranks", [2, 3])
def test_coalescing_blocks(ranks, device):
    on_ranks(blocks, ranks, device)


PROGRAM = """
import sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

rank, path, device = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("hccl-like", store=dist.FileStore(path, 2), rank=rank, world_size=2)
x = torch.ones(1000, device=device)
kept = [functional.all_reduce(x, "sum", dist.group.WORLD) for _ in range(3)]
torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name)
{end}
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["dist.destroy_process_group()", "pass"], ids=["destroyed", "not destroyed"])
def test_a_program_may_end_with_results_that_nobody_waited_for(end, device, tmp_path):
    import subprocess
    import sys

    ranks = [
        subprocess.Popen([sys.executable, "-c", PROGRAM.format(end=end), str(rank), str(tmp_path / "store"), device],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]  # fmt: skip
    for process in ranks:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        assert not any(word in output for word in ("Traceback", "terminate called", "Fatal")), output

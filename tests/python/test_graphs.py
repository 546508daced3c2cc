"""Collectives that a graph of the device (torch.accelerator.Graph) captures and replays."""

import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import values
from graphs import DISCRETE, MODES, capture, graphs, own_stream
from ranks import run_ranks

pytestmark = graphs


@pytest.fixture(params=MODES)
def mode(request, sim):
    return MODES[request.param]


# Each case: tensors of the rank, a function that makes the call, and what its result is if each rank's input is given(rank).
def all_reduce(rank, size, given, op=dist.ReduceOp.SUM):
    tensor = given(rank).to("sim")
    return [tensor], lambda: dist.all_reduce(tensor, op=op), tensor, lambda every: values.total(every)


def average(rank, size, given):
    tensor = given(rank).to("sim")
    if not tensor.is_floating_point() or size == 3:  # which has no exact average
        return all_reduce(rank, size, given, dist.ReduceOp.MAX)[:3] + (lambda every: torch.stack(every).amax(0),)
    return (
        [tensor],
        lambda: dist.all_reduce(tensor, op=dist.ReduceOp.AVG),
        tensor,
        lambda every: (torch.stack([one.double() for one in every]).sum(0) / size).to(tensor.dtype),
    )


def premultiplied(rank, size, given):
    tensor = given(rank).to("sim")
    if not tensor.is_floating_point() or size == 1:  # where it is refused
        return all_reduce(rank, size, given, dist.ReduceOp.MIN)[:3] + (lambda every: torch.stack(every).amin(0),)
    operation = dist._make_nccl_premul_sum(0.5)
    halves = lambda every: (torch.stack([one.double() for one in every]).sum(0) / 2).to(tensor.dtype)  # noqa: E731
    return [tensor], lambda: dist.all_reduce(tensor, op=operation), tensor, halves


def reduce(rank, size, given):
    tensor = given(rank).to("sim")
    return [tensor], lambda: dist.reduce(tensor, size - 1), tensor, lambda every: values.total(every) if rank == size - 1 else None


def reduce_scatter(rank, size, given):
    tensor = given(rank).to("sim")
    out = torch.empty(tensor.numel() // size, dtype=tensor.dtype, device="sim")
    return [tensor], lambda: dist.reduce_scatter_tensor(out, tensor), out, lambda every: values.total(every).chunk(size)[rank]


def all_gather(rank, size, given):
    tensor = given(rank).to("sim")
    out = torch.empty(size * tensor.numel(), dtype=tensor.dtype, device="sim")
    return [tensor], lambda: dist.all_gather_into_tensor(out, tensor), out, torch.cat


def all_gather_list(rank, size, given):
    tensor = given(rank).to("sim")
    whole = torch.empty(2, size * tensor.numel(), dtype=tensor.dtype, device="sim")
    outs = list(whole[1].chunk(size))[::-1]
    return [tensor], lambda: dist.all_gather(outs, tensor), whole[1], lambda every: torch.cat(every[::-1])


def strided_all_reduce(rank, size, given):
    tensor = torch.zeros(given(rank).numel(), 2, dtype=given(rank).dtype, device="sim")[:, 1]
    tensor.copy_(given(rank))
    return [tensor], lambda: dist.all_reduce(tensor), tensor, values.total


def broadcast(rank, size, given):
    tensor = given(rank).to("sim")
    return [tensor], lambda: dist.broadcast(tensor, size - 1), tensor, lambda every: every[-1]


def gather(rank, size, given):
    tensor = given(rank).to("sim")
    outs = [torch.empty_like(tensor) for _ in range(size)] if rank == 0 else None
    result = outs[1 % size] if rank == 0 else tensor
    return [tensor], lambda: dist.gather(tensor, outs, 0), result, lambda every: every[1 % size if rank == 0 else rank]


def scatter(rank, size, given):
    tensor = given(rank).to("sim")
    out = torch.empty(tensor.numel() // size, dtype=tensor.dtype, device="sim")
    parts = list(tensor.chunk(size)) if rank == 0 else None
    return [tensor], lambda: dist.scatter(out, parts, 0), out, lambda every: every[0].chunk(size)[rank]


def all_to_all(rank, size, given):
    tensor = given(rank).to("sim")
    out = torch.empty_like(tensor)
    parts = lambda every: torch.cat([one.chunk(size)[rank] for one in every])  # noqa: E731
    return [tensor], lambda: dist.all_to_all_single(out, tensor), out, parts


def uneven_all_to_all(rank, size, given):
    """Each rank gives the last one all but an element for each other."""
    tensor = given(rank).to("sim")
    to = [1] * (size - 1) + [tensor.numel() - (size - 1)]
    out = torch.empty(size * to[rank], dtype=tensor.dtype, device="sim")
    parts = lambda every: torch.cat([one.split(to)[rank] for one in every])  # noqa: E731
    return [tensor], lambda: dist.all_to_all_single(out, tensor, [to[rank]] * size, to), out, parts


CASES = [
    all_reduce, average, premultiplied, reduce, reduce_scatter, all_gather, all_gather_list, strided_all_reduce, broadcast, gather, scatter,
    all_to_all, uneven_all_to_all,
]  # fmt: skip


def every_call(rank, size, dtype, counts, replays):
    stream = own_stream(rank)
    for count in counts:
        count *= size
        for case in CASES:
            given = lambda of, start=0: values.plain(of, count, dtype, start)  # noqa: B023, E731
            tensors, call, result, expected = case(rank, size, given)
            graph = torch.accelerator.Graph()
            with capture(graph, stream):
                call()
            for replay in range(replays):
                with stream:
                    for tensor in tensors:
                        tensor.copy_(given(rank, replay))
                    graph.replay()
                    told = result.cpu()
                wanted = expected([given(of, replay) for of in range(size)])
                if wanted is not None:
                    assert values.equal(told, wanted), (case.__name__, count, dtype, replay)


def small_sums(rank, size):
    """64 KiB are one kernel, more are a stream program, which waits for words."""
    stream = own_stream(rank)
    for count, small in [(1, True), (1 << 14, True), ((1 << 14) + 1, False)]:
        tensors = [torch.full((count,), float(rank + 1), device="sim") for _ in range(3)]
        graph = torch.accelerator.Graph()
        with capture(graph, stream):
            for tensor in tensors:
                dist.all_reduce(tensor)
        with stream:
            for _ in range(20):
                graph.replay()
        stream.synchronize()
        dist.barrier()  # the other ranks have read this one's memory
        torch.sim.reset_traffic()
        with stream:
            graph.replay()
        stream.synchronize()
        traffic = torch.sim.traffic()
        if small:
            assert (traffic["kernels"], traffic["waits"]) == (3, 0), traffic
            assert traffic["peer"] == 3 * (size - 1) * count * 4, traffic
        else:
            assert traffic["waits"] > 3, traffic
        # Each replay multiplies what all ranks have by their number.
        wanted = size * (size + 1) / 2 * float(size) ** 20
        assert all(tensor.cpu().unique().tolist() == [wanted] for tensor in tensors), count


@pytest.mark.parametrize("size", [2, 4])
def test_a_small_sum_is_one_kernel(size, sim):
    run_ranks(small_sums, size, environment=DISCRETE)


@pytest.mark.parametrize("size", [2, 3])
def test_every_call_is_exact_in_each_replay(size, mode):
    run_ranks(every_call, size, torch.float32, [1, 257], 3, environment=mode)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2, torch.int64, torch.uint8], ids=str)
def test_every_call_is_exact_in(dtype, sim):
    run_ranks(every_call, 2, dtype, [33], 2, environment=DISCRETE)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 4, 8])
def test_every_call_is_exact_on(size, mode):
    run_ranks(every_call, size, torch.float32, [2, 5000], 3, environment=mode, timeout=240)


def a_thousand(rank, size):
    stream = own_stream(rank)
    step, total = torch.ones(1000, device="sim"), torch.zeros(1000, device="sim")
    graph = torch.accelerator.Graph()
    with capture(graph, stream):
        step += rank + 1
        taken = step.clone()
        dist.all_reduce(taken)
        total += taken
    torch.sim.reset_traffic()
    begin = time.thread_time()
    with stream:
        for _ in range(1000):
            graph.replay()
    issue = time.thread_time() - begin
    stream.synchronize()
    traffic = torch.sim.traffic()
    # Step k adds 1 + k (rank + 1) of each rank.
    wanted = sum(1 + k * (of + 1) for k in range(1, 1001) for of in range(size))
    assert total.tolist() == [wanted] * 1000
    assert traffic["host_to_device"] == traffic["device_to_host"] == 0, traffic
    assert traffic["peer"] > 0
    return issue


def test_a_thousand_replays_need_no_host(sim):
    run_ranks(a_thousand, 2, environment=DISCRETE)


def several(rank, size):
    """Two graphs in turn with ordinary calls between them; asynchronous, functional and coalesced calls, on two streams."""
    stream, side = own_stream(rank), torch.Stream(device=f"sim:{rank}")
    x, eager = torch.zeros(2, 300, device="sim")
    first, second = torch.accelerator.Graph(), torch.accelerator.Graph()
    with capture(first, stream):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        side.wait_stream(stream)
        with side:
            work.wait()
            y += 1
        stream.wait_stream(side)
    with capture(second, stream):
        z = functional.all_gather_tensor(x, 0, dist.group.WORLD) + 0
        a, b = x + 1, x + 2
        with dist._coalescing_manager(group=dist.group.WORLD, device=x.device):
            dist.all_reduce(a)
            dist.all_reduce(b)
    for turn in range(5):
        with stream:
            x.fill_(rank + turn)
            eager.fill_(turn)
            first.replay()
            second.replay()
            dist.all_reduce(eager)
            first.replay()
        sums = sum(of + turn for of in range(size))
        with stream:
            assert y.tolist() == [2 * sums + 1] * 300
            assert z.tolist() == [float(of + turn) for of in range(size) for _ in range(300)]
            assert a.tolist() == [sums + size] * 300 and b.tolist() == [sums + 2 * size] * 300
            assert eager.tolist() == [size * turn] * 300
    with stream:  # in the other order, at different times of the ranks
        time.sleep(0.05 * rank)
        second.replay()
        first.replay()
        assert y.tolist() == [2 * sums + 1] * 300


def test_graphs_and_ordinary_calls_in_turn(mode):
    run_ranks(several, 2, environment=mode)


def trained(rank, size, graph):
    stream = own_stream(rank)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to("sim")
    batches = torch.randn(6, size, 5, 8).to("sim")
    batch = torch.zeros(5, 8, device="sim")
    torch.sim.synchronize()

    def step():
        model.zero_grad(set_to_none=False)
        model(batch).square().mean().backward()
        with torch.no_grad():
            for weight in model.parameters():
                dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
                weight -= 0.1 * weight.grad

    with stream:
        batch.copy_(batches[0, rank])
        step()
    run = step
    if graph:
        captured = torch.accelerator.Graph()
        with capture(captured, stream):
            step()
        run = captured.replay
    with stream:
        for one in batches[1:]:
            batch.copy_(one[rank])
            run()
    stream.synchronize()
    return [weight.tolist() for weight in model.parameters()]


def test_a_training_step_in_a_graph_is_the_ordinary_one(mode):
    for captured, ordinary in zip(run_ranks(trained, 2, True, environment=mode), run_ranks(trained, 2, False, environment=mode)):
        assert captured == ordinary

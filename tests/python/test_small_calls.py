"""All-reductions of little data that one kernel of each rank's device makes: no byte goes through the host."""

import os
import re
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from graphs import DISCRETE
from ranks import run_ranks
from streams import Gate

BY_HOST = 32  # calls of a group that the host makes before kernels do (small_calls.h)
LARGEST = 1 << 14  # float32


def warmed(group=None, count=1):
    """So many calls that kernels make the next one, and have made one, before which they try the sum."""
    tensor = torch.zeros(count, device="sim")
    for _ in range(BY_HOST + 1):
        dist.all_reduce(tensor, group=group)
    torch.sim.synchronize()


def crossed():
    traffic = torch.sim.traffic()
    return traffic["host_to_device"] + traffic["device_to_host"]


def traffic_of_a_call(rank, size):
    torch.sim.set_device(rank)
    warmed()
    for count, by_kernel in [(1, True), (LARGEST, True), (LARGEST + 1, False)]:
        tensor = torch.full((count,), float(rank + 1), device="sim")
        torch.sim.synchronize()
        torch.sim.reset_traffic()
        for _ in range(3):
            dist.all_reduce(tensor)
        torch.sim.synchronize()
        traffic = torch.sim.traffic()
        if by_kernel:
            assert crossed() == 0 and traffic["kernels"] == 3, traffic
            assert traffic["peer"] == 3 * (size - 1) * 4 * count, traffic
        else:
            assert traffic["waits"] > 0, traffic  # a stream program
        assert tensor.cpu().unique().tolist() == [size * (size + 1) / 2 * size * size]


@pytest.mark.parametrize("size", [2, 4])
def test_no_byte_goes_through_the_host(size, sim):
    run_ranks(traffic_of_a_call, size, environment=DISCRETE)


def every_kind(rank, size):
    torch.sim.set_device(rank)
    side = torch.Stream(device=f"sim:{rank}")
    for dtype in values.ALL:
        for count in (1, 33, 1000):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
                if op == dist.ReduceOp.AVG and (size == 3 or not dtype.is_floating_point or dtype in values.NARROW):
                    continue  # which has no exact average
                if op == dist.ReduceOp.MAX and dtype in values.COMPLEX:
                    continue
                given = [values.plain(of, count, dtype) for of in range(size)]
                tensor = given[rank].to("sim")
                wide = torch.zeros(count, 2, dtype=dtype, device="sim")
                wide[:, 1] = tensor
                torch.sim.current_stream().synchronize()
                with side:
                    elsewhere = given[rank].to("sim")
                    dist.all_reduce(elsewhere, op=op)
                work = dist.all_reduce(tensor, op=op, async_op=True)
                dist.all_reduce(wide[:, 1], op=op)
                work.wait()
                if op == dist.ReduceOp.SUM:
                    wanted = values.total(given)
                elif op == dist.ReduceOp.MAX:
                    wanted = torch.stack([one.double() for one in given]).amax(0).to(dtype)
                else:
                    wanted = (torch.stack([one.double() for one in given]).sum(0) / size).to(dtype)
                side.synchronize()
                for told in (tensor, wide[:, 1], elsewhere):
                    assert values.equal(torch.empty_like(wanted).copy_(told), wanted), (dtype, count, op)
                assert not wide[:, 0].cpu().any()


@pytest.mark.parametrize("size", [2, 3])
def test_every_type_and_order_is_exact(size, sim):
    run_ranks(every_kind, size, environment=DISCRETE, timeout=120)


def outstanding(rank, size):
    """Two groups at once, whose calls a rank issues in an order of its own, in front of streams that are late."""
    torch.sim.set_device(rank)
    groups = [dist.new_group(list(range(size))) for _ in range(2)]
    for group in groups:
        warmed(group)
    for turn in range(3):
        gate = Gate()
        tensors = [torch.full((100 + i,), float(rank + i), device="sim") for i in range(32)]
        works = [None] * 32
        order = range(32) if rank % 2 else [i + half for half in (16, 0) for i in range(16)]
        begin = time.monotonic()
        for i in order:
            works[i] = dist.all_reduce(tensors[i], group=groups[i // 16], async_op=True)
        gate.require_closed("an asynchronous call")
        assert time.monotonic() - begin < 5
        gate.open()
        for work in works:
            work.wait()
        for i, tensor in enumerate(tensors):
            assert tensor.cpu().unique().tolist() == [sum(range(size)) + size * i], (turn, i)


@pytest.mark.parametrize("size", [2, 4])
def test_groups_do_not_wait_for_each_other(size, sim):
    run_ranks(outstanding, size, environment=DISCRETE)


def ahead(rank, size):
    """Rank 0 issues all its calls before the others begin."""
    torch.sim.set_device(rank)
    if rank:
        time.sleep(1)
    tensors = [torch.full((10,), float(rank + i), device="sim") for i in range(3 * BY_HOST)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    for i, tensor in enumerate(tensors):
        assert tensor.tolist() == [sum(range(size)) + size * i] * 10, i


def test_a_rank_may_be_ahead(sim):
    run_ranks(ahead, 3, environment=DISCRETE)


def alone(rank, size):
    torch.sim.set_device(rank)
    warmed()
    if rank == 0:
        tensor = torch.ones(100, device="sim")
        dist.all_reduce(tensor)
        with pytest.raises(dist.DistBackendError) as caught:
            torch.sim.synchronize()
        assert torch.isnan(tensor.cpu()).all()
    else:
        time.sleep(3)
        with pytest.raises(dist.DistBackendError) as caught:
            for _ in range(2):  # rank 0 has given its part to the first
                dist.all_reduce(torch.ones(100, device="sim"))
                torch.sim.synchronize()
    return str(caught.value)


def test_a_call_that_the_others_do_not_make_times_out(sim):
    said = run_ranks(alone, 2, environment=DISCRETE, group_timeout=2)
    assert re.search("all_reduce #34 .* timeout after 2... ms, waiting for rank 1", said[0]), said
    assert "rank 0" in said[1], said


def late_stream(rank, size):
    """The time-out counts from the moment in which this rank's device begins the call."""
    torch.sim.set_device(rank)
    warmed()
    tensor = torch.ones(100, device="sim")
    gate = Gate()
    work = dist.all_reduce(tensor, async_op=True)
    time.sleep(2.5)
    gate.open()
    work.wait()
    assert tensor.tolist() == [size] * 100


def test_a_stream_may_be_late(sim):
    run_ranks(late_stream, 2, environment=DISCRETE, group_timeout=2)


def beside_a_death(rank, size):
    torch.sim.set_device(rank)
    warmed()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["queued 0", "queued 2"])
        os.kill(os.getpid(), signal.SIGKILL)
    tensors = [torch.ones(100, device="sim") for _ in range(3)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    store.set(f"queued {rank}", "")
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"lost rank 1\b"):
        torch.sim.synchronize()
    assert time.monotonic() - begin < 5
    assert all(torch.isnan(tensor.cpu()).all() for tensor in tensors)
    said = []
    for work in works:
        with pytest.raises(dist.DistBackendError, match=r"rank 1\b") as caught:
            work.wait()
        said.append(str(caught.value))
    return said


def test_a_rank_that_dies_is_named(sim):
    said = run_ranks(beside_a_death, 3, environment=DISCRETE)
    assert said[1] == -signal.SIGKILL
    assert all("lost rank 1" in text for rank in (0, 2) for text in said[rank]), said


def mismatched(rank, size, calls):
    torch.sim.set_device(rank)
    warmed()
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError) as caught:
        calls[rank](torch.ones(LARGEST + 1, device="sim"))
        torch.sim.synchronize()
        dist.all_reduce(torch.ones(1, device="sim"), async_op=True).wait()
    assert time.monotonic() - begin < 5
    return str(caught.value)


MISMATCHES = {
    "sizes": lambda tensor: dist.all_reduce(tensor[:101]),
    "types": lambda tensor: dist.all_reduce(tensor[:100].int()),
    "operations": lambda tensor: dist.all_reduce(tensor[:100], op=dist.ReduceOp.MAX),
    "kinds": lambda tensor: dist.broadcast(tensor[:100], 0),
    "ways": dist.all_reduce,
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_calls_that_do_not_fit_together_are_named(what, sim):
    calls = [lambda tensor: dist.all_reduce(tensor[:100]), MISMATCHES[what]]
    said = run_ranks(mismatched, 2, calls, environment=DISCRETE)
    assert all("Every rank must make the same calls" in text for text in said), said


def aborted(rank, size):
    torch.sim.set_device(rank)
    warmed()
    if rank == 0:
        dist.all_reduce(torch.ones(10, device="sim"), async_op=True)
        time.sleep(0.2)
        dist.group.WORLD.abort()
    else:
        time.sleep(1)
    with pytest.raises(dist.DistBackendError):
        for _ in range(2):
            dist.all_reduce(torch.ones(3, device="sim"))
            torch.sim.synchronize()


def test_an_abort_ends_calls(sim):
    run_ranks(aborted, 2, environment=DISCRETE)


def abort_while_others_are_missing(rank, size):
    """In the call that waits until all ranks have made the first one."""
    torch.sim.set_device(rank)
    if rank == 0:
        import threading

        threading.Timer(0.5, dist.group.WORLD.abort).start()
        begin = time.monotonic()
        with pytest.raises(dist.DistBackendError):
            for _ in range(BY_HOST + 1):
                dist.all_reduce(torch.ones(10, device="sim"), async_op=True)
        assert time.monotonic() - begin < 5
    else:
        time.sleep(1)


def test_an_abort_ends_the_wait_for_the_first_call(sim):
    run_ranks(abort_while_others_are_missing, 2, environment=DISCRETE)


def by_turns(rank, size):
    """Groups end as soon as their last call is queued, and ranks leave at different times."""
    torch.sim.set_device(rank)
    for turn in range(5):
        group = dist.new_group(list(range(size)), timeout=timedelta(seconds=20))
        tensor = torch.full((LARGEST,), float(rank), device="sim")
        for _ in range(BY_HOST):
            dist.all_reduce(torch.ones(1, device="sim"), group=group)
        work = dist.all_reduce(tensor, group=group, async_op=True)
        if rank == turn % size:
            time.sleep(0.05)
        work.wait()
        dist.destroy_process_group(group)
        assert tensor.cpu().unique().tolist() == [sum(range(size))]


def test_groups_come_and_go(sim):
    run_ranks(by_turns, 3, environment=DISCRETE)

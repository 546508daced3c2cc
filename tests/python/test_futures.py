"""Futures of calls on the host, which a thread of the library completes while the program does other things."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks

LARGE = 1 << 20


def ends_out_of_order(rank, size):
    """A Future of an earlier call must not hold back those of later ones, nor be forgotten for them."""
    late = torch.zeros(LARGE)
    if rank == 0:
        waits = dist.irecv(late, 1).get_future()
    sums = [torch.full((count,), 1.0 + rank) for count in (10, LARGE, 10)]
    for tensor in sums:
        dist.all_reduce(tensor, async_op=True).get_future().wait()
    found = [tensor.unique().tolist() for tensor in sums]
    if rank == 0:
        was_done = waits.done()
        dist.send(torch.ones(1), 1)
        waits.wait()
        return found, was_done, late.unique().tolist()
    dist.recv(torch.zeros(1), 0)
    dist.send(torch.full((LARGE,), 5.0), 0)
    return found


def test_futures_complete_in_the_order_in_which_calls_end(transport):
    sums = [[3.0]] * 3
    assert run_ranks(ends_out_of_order, 2, environment=transport) == [(sums, False, [5.0]), sums]


def goes_on_in_a_callback(rank, size):
    """What hangs on a Future makes calls and waits for them, and what hangs on those does too."""
    first = torch.full((LARGE,), 1.0)

    def double(future):
        second = future.value()[0].clone()
        dist.all_reduce(second, async_op=True).get_future().wait()
        return second

    chained = dist.all_reduce(first, async_op=True).get_future().then(double).then(lambda future: future.value() + rank)
    return chained.wait().unique().tolist()


def test_callbacks_make_calls_of_their_own(transport):
    assert run_ranks(goes_on_in_a_callback, 2, environment=transport) == [[4.0], [5.0]]


def fails(rank, size):
    """The Future of a call that fails says why, and the thread goes on to serve another group."""
    other = dist.new_group()
    if rank == 1:
        dist.all_reduce(torch.ones(1), group=other, async_op=True).get_future().wait()
        return None
    broken = dist.all_reduce(torch.ones(LARGE), async_op=True)
    future = broken.get_future()
    dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    with pytest.raises(RuntimeError, match="abort"):
        future.wait()
    served = torch.ones(1)
    dist.all_reduce(served, group=other, async_op=True).get_future().wait()
    return served.item()


def test_a_failed_call_fails_its_future():
    assert run_ranks(fails, 2) == [2.0, None]


def switches():
    """How often threads of this process have gone to sleep."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        try:
            status = open(f"/proc/self/task/{task}/status").read()
        except FileNotFoundError:
            continue
        count += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return count


def idles(rank, size):
    """How often somebody wakes in a fifth of a second after each of a few large calls, of which only one may be unlucky."""
    counts = []
    for _ in range(5):
        tensor = torch.ones(LARGE)
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        time.sleep(0.01)
        before = switches()
        time.sleep(0.2)
        counts.append(switches() - before)
    return sorted(counts)


def test_nobody_looks_for_work_after_a_large_call():
    for counts in run_ranks(idles, 2):
        assert counts[3] < 6, counts  # the lookout looks twice a second, the sleepers now and then for whether peers live


def in_callbacks(rank, size, device):
    def again(_):
        dist.barrier(device_ids=[0], async_op=True).get_future().wait()
        done.append(True)

    done = []
    for _ in range(100):
        dist.barrier(device_ids=[0], async_op=True).get_future().then(again).wait()
    assert len(done) == 100


def test_a_callback_may_wait_for_the_future_of_a_call_that_the_device_ends_late(sim):
    """In strict mode the end of a call, an event in its stream, often comes later than its data."""
    run_ranks(in_callbacks, 2, sim, timeout=20, environment={"TORCH_SIM_STRICT": "1"})

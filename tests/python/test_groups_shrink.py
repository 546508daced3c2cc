"""Groups that go on without some of their ranks."""

import os
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import SHRINK_ABORT

import values
from ranks import make_store, run_ranks


def sum_over(group, ranks, rank, device, count=11):
    """`ranks` are numbers that tell the ranks apart, `rank` is this one's."""
    tensor = values.plain(rank, count, torch.float32).to(device)
    dist.all_reduce(tensor, group=group)
    assert values.equal(tensor, values.total([values.plain(r, count, torch.float32) for r in ranks]))


def twice_smaller(rank, size, device):
    sum_over(None, range(size), rank, device)
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        return
    group = dist.shrink_group([1])
    assert dist.group.WORLD is group and dist.get_world_size() == size - 1
    left = [r for r in range(size) if r != 1]
    assert dist.get_rank() == left.index(rank)
    sum_over(None, left, rank, device)
    dist.barrier()
    if rank == 3:
        dist.destroy_process_group()
        return
    dist.shrink_group([2])
    sum_over(None, [0, 2], rank, device)
    sum_over(dist.new_group([0, 1]), [0, 2], rank, device)


def test_a_group_shrinks_twice(device):
    bound = {} if device == "cpu" else {"device_id": torch.device(device, 0)}
    run_ranks(twice_smaller, 4, device, **bound)


def after_a_death(rank, size, device, count):
    """One rank dies in the middle; the others' calls fail, and they go on in the same processes."""
    sum_over(None, range(size), rank, device)
    if rank == 2:
        os._exit(7)
    with pytest.raises(RuntimeError, match="rank 2|rank \\d gave up"):
        dist.all_reduce(torch.ones(count, device=device))
        if device != "cpu":
            torch.sim.synchronize()
            dist.all_reduce(torch.ones(1, device=device))
    dist.shrink_group([2], shrink_flags=SHRINK_ABORT)
    left = [0, 1, 3]
    for _ in range(3):
        sum_over(None, left, rank, device, count)
    gathered = [None] * 3
    dist.all_gather_object(gathered, rank)
    assert gathered == left


@pytest.mark.parametrize("count", [11, 1_000_003])
def test_the_living_go_on_without_the_dead(device, transport, count):
    bound = {} if device == "cpu" else {"device_id": torch.device(device, 0)}
    results = run_ranks(after_a_death, 4, device, count, environment=transport, **bound)
    assert results == [None, None, 7, None]


def all_have(done, rank, size):
    """A barrier that no group takes part in."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{done}/{rank}", "yes")
    store.wait([f"{done}/{other}" for other in range(size)])


def out_of_a_call(rank, size, device):
    """SHRINK_ABORT ends a call that waits for the rank that is left out; it lives and learns of it."""
    group = dist.new_group(timeout=timedelta(seconds=25))
    begin = time.monotonic()
    if rank == 2:  # not the one whose process holds the store
        # A message that is never sent: no call of the others that it could disagree with.
        work = dist.irecv(torch.ones(1, device=device), 1, group=group)
    else:
        work = dist.all_reduce(torch.ones(500_000, device=device), group=group, async_op=True)
    all_have("called", rank, size)
    if rank != 2:
        small = dist.shrink_group([2], group=group, shrink_flags=SHRINK_ABORT)
    with pytest.raises(RuntimeError, match="was aborted"):
        work.wait()
        if device != "cpu":
            torch.sim.synchronize()
            work.wait()
    assert time.monotonic() - begin < 10
    all_have("ended", rank, size)  # a rank that sees rank 2 leave before the abort names that
    if rank != 2:
        sum_over(small, [0, 1], rank, device)


def test_shrinking_ends_running_calls_if_it_is_told_to(device):
    bound = {} if device == "cpu" else {"device_id": torch.device(device, 0)}
    run_ranks(out_of_a_call, 3, device, **bound)


def refusals(rank, size):
    import hccl_like

    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_shrinking
    with pytest.raises(ValueError, match="rank 9 cannot be left out: the group has ranks 0 to 1"):
        backend.shrink([9])
    with pytest.raises(ValueError, match="only the ranks that stay call shrink"):
        backend.shrink([rank])
    options = hccl_like.Options()
    options.group_name = "given"
    options.timeout = timedelta(seconds=9)
    small = backend.shrink([1 - rank], 0, options)
    assert small.size() == 1 and small.options.timeout == timedelta(seconds=9)
    assert small.options.global_ranks_in_group == [rank]
    small.shutdown()


def test_wrong_ranks_are_refused():
    run_ranks(refusals, 2)

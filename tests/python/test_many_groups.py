"""What a process group holds: no thread, no descriptor, and little memory."""

import gc
import os

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks

KIB_PER_GROUP = 32
PAYLOAD = 300  # numbers: too many for a line of the board, which then needs room beside it


def holds():
    """Threads, descriptors, and KiB of memory: this process's own, and what it lends to its peers."""
    gc.collect()
    with open("/proc/self/smaps_rollup") as rollup:
        anonymous = next(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:"))
    shared = 0
    descriptors = os.listdir("/proc/self/fd")
    for descriptor in descriptors:
        path = f"/proc/self/fd/{descriptor}"
        if os.path.exists(path) and "memfd:" in os.readlink(path):
            shared += os.stat(path).st_blocks // 2
    return len(os.listdir("/proc/self/task")), len(descriptors), anonymous + shared


def use(groups):
    for group in groups:
        small, larger = torch.ones(2), torch.ones(PAYLOAD)
        dist.all_reduce(small, group=group)
        dist.all_reduce(larger, group=group, async_op=True).wait()
        dist.barrier(group=group)
        assert small.eq(dist.get_world_size()).all() and larger.eq(dist.get_world_size()).all()


def leave_a_call_alone(rank):
    """What nobody waits for while it can't go on: from then on, the thread for such calls is there."""
    work = dist.irecv(torch.empty(1), 1 - rank)
    dist.barrier()
    dist.send(torch.ones(1), 1 - rank)
    work.wait()


def growth(rank, size, count):
    groups = [dist.new_group() for _ in range(8)]
    leave_a_call_alone(rank)
    use(groups)
    before = holds()
    groups += [dist.new_group() for _ in range(count)]
    use(groups)
    after = holds()
    use(groups[::-1])
    for group in groups:
        dist.destroy_process_group(group)
    return tuple(late - early for early, late in zip(before, after))


@pytest.mark.parametrize("count", [64, pytest.param(500, marks=pytest.mark.slow)])
def test_a_group_costs_no_thread_no_descriptor_and_little_memory(count):
    for threads, descriptors, kib in run_ranks(growth, 2, count, timeout=120):
        assert threads == 0
        assert descriptors == 0
        if not os.environ.get("SANITIZED"):  # whose red zones are no group's memory
            assert kib <= count * KIB_PER_GROUP, f"{kib / count:.1f} KiB for each group"

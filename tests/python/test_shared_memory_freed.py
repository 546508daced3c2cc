"""Memory that ranks on one host share and that is freed: nobody keeps it, and nobody writes into it afterwards."""

import gc
import os
import random
import signal
import time

import pytest
import torch
import torch.distributed as dist

import hccl_like
from ranks import run_ranks

# ---------------------------------------------------------------------------------------------------- memory that is freed


def mapped(name):
    """How many mappings of files of that name this process has, and their bytes."""
    sizes = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if name in line:
                begin, end = (int(address, 16) for address in line.split()[0].split("-"))
                sizes.append(end - begin)
    return len(sizes), sum(sizes)


def shared_and_dropped(rank, size):
    """What a data loader's workers hand over is shared, used in a call or two, and freed."""
    kept = torch.ones(1 << 18).share_memory_()
    most = 0
    for i in range(1000):
        tensor = torch.ones(1 << 18).share_memory_()
        dist.all_reduce(tensor)
        if i % 3 == 0:
            dist.broadcast(tensor, 0)
        assert tensor[i] == size
        del tensor
        if i % 100 == 0:
            dist.all_reduce(kept)
        most = max(most, mapped("/dev/shm/torch_")[0])
    # Of this rank: what it keeps and the last one. Of the other: the same, and the one before.
    assert most <= 5, most
    del kept
    for _ in range(200):
        dist.barrier()
    assert mapped("/dev/shm/torch_") == (0, 0)


def test_a_freed_tensor_that_torch_shared_is_not_kept_by_peers():
    run_ranks(shared_and_dropped, 2, timeout=120)


def of_peers():
    """Bytes of the other ranks' device memory that this process has mapped: of its own it has the files open."""
    own = {os.stat(f"/proc/self/fd/{file}").st_ino for file in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{file}")}
    total = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _, _, _, inode, *_ = line.split()
            if "/memfd:torch_sim" in line and int(inode) not in own:
                begin, end = (int(address, 16) for address in span.split("-"))
                total += end - begin
    return total


SEGMENT = 64 << 20  # of the simulator's allocator


def freed_on_the_device(rank, size):
    most = 0
    for i in range(40):
        tensor = torch.ones((1 << 20) + (i << 10), device="sim")
        for _ in range(3):
            dist.all_reduce(tensor)
        assert tensor[i].item() == size**3
        torch.sim.synchronize()
        most = max(most, of_peers())
        del tensor
        torch.sim.empty_cache()
        dist.barrier()
    assert most > 0, "nothing was mapped, so nothing is tested"
    # The last tensor of the other rank and the one before, each in a segment of the allocator.
    assert most <= 2 * SEGMENT, most
    # Each rank takes note of what it has freed, then of what the other has.
    for _ in range(2):
        for _ in range(100):
            dist.all_reduce(torch.ones(1))
        dist.barrier()
    assert of_peers() == 0


def test_a_freed_allocation_of_the_accelerator_is_not_kept_by_peers(sim):
    run_ranks(freed_on_the_device, 2)


# ------------------------------------------------------------------------------------------- a rank that is stopped in a call


def wait_for(path):
    deadline = time.monotonic() + 30
    while not os.path.exists(path):
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.005)


def stopped_while_it_writes(rank, size, folder):
    tensor = hccl_like.empty(1 << 24).fill_(1)
    dist.all_reduce(tensor)  # from now on the memory is known
    if rank == 1 and os.fork() == 0:
        wait_for(f"{folder}/begun")
        time.sleep(random.uniform(0.05, 0.15))  # into the middle of a call
        os.kill(os.getppid(), signal.SIGSTOP)
        wait_for(f"{folder}/used_again")
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    with pytest.raises(dist.DistBackendError):
        while True:
            dist.all_reduce(tensor)
            if rank == 1:
                open(f"{folder}/begun", "w").close()
    if rank == 1:
        open(f"{folder}/ended", "w").close()
        return
    del tensor
    gc.collect()
    fresh = [hccl_like.empty(1 << 24).fill_(7) for _ in range(2)]
    open(f"{folder}/used_again", "w").close()
    wait_for(f"{folder}/ended")
    assert all(one.eq(7).all() for one in fresh), "a rank that was stopped wrote into memory that had been freed"


def test_a_rank_that_was_stopped_writes_only_into_memory_that_is_kept(tmp_path):
    for attempt in range(16):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        log = folder / "log"
        run_ranks(stopped_while_it_writes, 2, str(folder), environment={"HCCL_LIKE_DEBUG_FILE": str(log)}, group_timeout=1)
        if "was stopped while it wrote into the memory of rank 0, which is kept" in log.read_text():
            return
    pytest.fail("rank 1 was never stopped while it wrote")


def stopped_while_it_writes_on_the_device(rank, size, folder):
    """In stream order a program may free a tensor while the call runs, so that there is nothing to keep when the call fails."""
    if rank == 1 and os.fork() == 0:
        wait_for(f"{folder}/begun")
        time.sleep(random.uniform(0.05, 0.15))
        os.kill(os.getppid(), signal.SIGSTOP)
        wait_for(f"{folder}/told")
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    with pytest.raises(dist.DistBackendError):
        for call in range(1_000_000):
            tensor = torch.empty(1 << 23, device="sim")
            dist.all_reduce(tensor)
            del tensor
            if call % 2:
                torch.sim.synchronize()
            if rank == 1 and call > 2:
                open(f"{folder}/begun", "w").close()
    if rank == 0:
        gc.collect()
        fresh = [torch.full((1 << 20,), 7.0, device="sim") for _ in range(8)]
        open(f"{folder}/told", "w").close()
        wait_for(f"{folder}/ended")
        del fresh
    else:
        open(f"{folder}/ended", "w").close()


def test_a_tensor_that_was_freed_while_a_stopped_rank_wrote_is_named(sim, tmp_path):
    for attempt in range(16):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        log = folder / "log"
        run_ranks(stopped_while_it_writes_on_the_device, 2, str(folder), environment={"HCCL_LIKE_DEBUG_FILE": str(log)}, group_timeout=1)
        if "was stopped while it wrote into the memory of rank 0" in log.read_text():
            return
    pytest.fail("rank 1 was never stopped while it wrote")

"""Signals and barriers of symmetric memory: order, streams, time-outs, dead ranks."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

import values
from ranks import run_ranks
from symmetric import AT_ONCE, QUEUED_MS, settle, shared, world


def hands_a_value_on(rank, size, device):
    """A token goes round: each rank adds to it when its turn comes, and no rank looks before that."""
    tensor, handle = shared((1,), torch.int64, device=device, fill=0)
    handle.barrier()
    for slice in range(3):
        if rank > 0 or slice > 0:
            handle.wait_signal((rank - 1) % size, channel=2)
            tensor.add_(1)
        following = handle.get_buffer((rank + 1) % size, (1,), torch.int64)
        following.copy_(tensor)
        handle.put_signal((rank + 1) % size, channel=2)
    if rank == 0:
        handle.wait_signal(size - 1, channel=2)
        assert tensor.item() == 3 * size - 1
    handle.barrier()


def in_stream_order(rank, size):
    """Issuing does not block; what is queued behind a wait sees what was queued in front of the signal."""
    tensor, handle = shared((1000,), device="sim", fill=0)
    copy = torch.zeros(1000, device="sim")
    source = handle.get_buffer((rank + 1) % size, (1000,), torch.float32)
    for slice in range(1, 4):
        torch.sim.synchronize()
        begin = time.monotonic()
        torch.sim._sleep(QUEUED_MS)
        tensor.fill_(slice * (rank + 1))
        handle.put_signal((rank - 1) % size, channel=1)
        handle.wait_signal((rank + 1) % size, channel=1)
        copy.copy_(source)
        handle.barrier(channel=3)
        assert time.monotonic() - begin < AT_ONCE, "issuing waited for the device"
        assert values.equal(copy, torch.full((1000,), float(slice * ((rank + 1) % size + 1))))


def on_two_streams(rank, size):
    """Channels keep the barriers of two streams apart, in whatever order they are issued."""
    tensor, handle = shared((2,), torch.int64, device="sim", fill=0)
    torch.sim.synchronize()
    streams = [torch.sim.Stream(), torch.sim.Stream()]
    seen = {}
    for channel in (0, 1) if rank % 2 else (1, 0):
        with torch.sim.stream(streams[channel]):
            torch.sim._sleep(50 * (rank + channel))
            tensor[channel : channel + 1].fill_(10 * channel + rank)
            handle.barrier(channel=channel)
            seen[channel] = torch.zeros(1, dtype=torch.int64, device="sim")
            seen[channel].copy_(handle.get_buffer((rank + 1) % size, (2,), torch.int64)[channel : channel + 1])
            handle.barrier(channel=channel)
    torch.sim.synchronize()
    for channel in (0, 1):
        assert seen[channel].item() == 10 * channel + (rank + 1) % size


@pytest.mark.parametrize("size", [2, 3])
def test_signals_order_what_ranks_do(device, size):
    run_ranks(hands_a_value_on, size, device)


@pytest.mark.parametrize("case", [in_stream_order, on_two_streams], ids=lambda case: case.__name__)
def test_signals_keep_the_order_of_streams(case, sim):
    run_ranks(case, 3)


def nobody_signals(rank, size, device):
    """The error names who gave up and whom it waited for; the others learn of it, and stay so."""
    tensor, handle = shared((4,), device=device, fill=0)
    other, other_handle = shared((4,), device=device, fill=rank)
    handle.barrier()
    if rank == 1:
        with pytest.raises(RuntimeError, match=r"failed on rank 1: wait_signal on channel 3: timed out waiting for rank 2"):
            handle.wait_signal(2, channel=3, timeout_ms=100)
            settle(device)
            handle.get_buffer(0, (4,), torch.float32)
        dist.barrier()
    else:
        dist.barrier()
        with pytest.raises(RuntimeError, match=r"failed on rank 1: wait_signal"):
            handle.barrier()
    with pytest.raises(RuntimeError, match="failed on rank 1"):
        torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())
    other_handle.barrier()  # another memory is as good as before
    assert other_handle.get_buffer(2, (4,), torch.float32).tolist() == [2.0] * 4
    other_handle.barrier()


def nobody_takes_the_signal(rank, size, device):
    _, handle = shared((4,), device=device)
    if rank == 0:
        handle.put_signal(1, channel=0)
        with pytest.raises(RuntimeError, match=r"put_signal on channel 0 .*timed out waiting for rank 1"):
            handle.put_signal(1, channel=0, timeout_ms=50)
            settle(device)
            handle.barrier()
    dist.barrier()


def barrier_without_two(rank, size, device):
    _, handle = shared((4,), device=device)
    if rank in (0, 3):
        with pytest.raises(RuntimeError, match=r"barrier on channel 1: timed out waiting for ranks 1 and 2"):
            handle.barrier(channel=1, timeout_ms=300)
            settle(device)
            handle.barrier(channel=1)
    dist.barrier()


def dies(rank, size, device):
    tensor, handle = shared((4,), device=device, fill=rank)
    handle.barrier()
    settle(device)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="process of rank 1 has ended"):
        handle.barrier()
        settle(device)
        handle.barrier()
    assert time.monotonic() - begin < 5, "a dead rank must be noticed before the time-out"


def wrong_arguments(rank, size, device):
    _, handle = shared((4,), device=device)
    with pytest.raises((ValueError, RuntimeError), match="channel 100000 is not one of 0 to"):
        handle.barrier(channel=100_000)
    with pytest.raises((ValueError, RuntimeError), match="rank 2 is not in group"):
        handle.put_signal(2)
    handle.barrier()


def test_a_signal_that_does_not_come_fails_all_ranks(device):
    run_ranks(nobody_signals, 3, device)


def test_a_signal_that_nobody_takes_blocks_the_next(device):
    run_ranks(nobody_takes_the_signal, 2, device)


def test_a_barrier_names_all_ranks_that_are_missing(device):
    run_ranks(barrier_without_two, 4, device)


def test_a_dead_rank_is_noticed(device):
    assert run_ranks(dies, 2, device) == [None, -signal.SIGKILL]


def test_wrong_ranks_and_channels_are_refused(device):
    run_ranks(wrong_arguments, 2, device)

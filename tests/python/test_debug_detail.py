"""TORCH_DISTRIBUTED_DEBUG=DETAIL: torch compares every call between ranks before it is made, by its number too."""

import pytest
import torch
import torch.distributed as dist

from ranks import make_store, run_ranks


def in_detail(function):
    """`function(rank, size, device)` as a rank's work in a group that torch's debug wrapper is around."""

    def work(rank, size, listener, device):
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size)
        function(rank, size, device)
        dist.destroy_process_group()

    return work


def sizes(rank, size, device):
    dist.all_reduce(torch.ones(2, device=device))
    with pytest.raises(RuntimeError, match="(?s)Detected mismatch.*SequenceNumber=1.*TensorShape=.[45]"):
        dist.all_reduce(torch.ones(4 + rank, device=device))


def test_different_sizes_are_found_before_the_call(device):
    run_ranks(in_detail(sizes), 2, device, group=False)


def operations(rank, size, device):
    ones = torch.ones(4, device=device)
    dist.all_reduce(ones)
    with pytest.raises(RuntimeError, match="(?s)Detected mismatch.*(ALLREDUCE|BROADCAST).*(ALLREDUCE|BROADCAST)"):
        if rank == 0:
            dist.all_reduce(ones)
        else:
            dist.broadcast(ones, 0)


def test_different_calls_are_found_before_they_are_made(device):
    run_ranks(in_detail(operations), 2, device, group=False)


def numbers(rank, size, device):
    backend = dist.group.WORLD._get_backend(torch.device(device))
    before = backend._get_sequence_number_for_group()
    for n in range(1, 4):
        dist.all_reduce(torch.ones(2, device=device))
        assert backend._get_sequence_number_for_group() == before + n
    dist.barrier()
    assert backend._get_sequence_number_for_group() == before + 4


def test_a_backend_counts_its_collective_calls(device):
    run_ranks(numbers, 2, device)

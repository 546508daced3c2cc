"""HCCL_LIKE_CALL_SITES: ranks that make the same call from different lines are told so, with both lines."""

import itertools
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hccl_like
from ranks import RankFailed, run_ranks

MODE = {"HCCL_LIKE_CALL_SITES": "1"}


def line_of(mark):
    """This file's line that ends with a comment."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"  # {mark}"))
    return f"python/test_call_sites.py:{number}"


def ends(tensors):
    """Of device tensors an error comes with the next call."""
    if tensors[0].device.type != "cpu":
        torch.sim.synchronize()
        dist.all_reduce(torch.ones(1, device=tensors[0].device))


def stay_until_all_are_here(rank, size):
    """Rank 0 serves the store that knows the lines."""
    store = dist.distributed_c10d._get_default_store()
    here = store.add("told", 1)
    end = time.monotonic() + 30
    while rank == 0 and here < size and time.monotonic() < end:
        time.sleep(0.01)
        here = store.add("told", 0)


def swapped(rank, size, device):
    weights, biases = torch.ones(3, device=device), torch.full((3,), 2.0, device=device)
    with pytest.raises(dist.DistBackendError) as caught:
        if rank == 0:
            dist.all_reduce(weights)  # one
            dist.all_reduce(biases)
        else:
            dist.all_reduce(biases)  # other
            dist.all_reduce(weights)
        ends((weights, biases))
    stay_until_all_are_here(rank, size)
    failure = hccl_like.failure(caught.value)
    assert failure.number in (501, 502)
    for mark in ("one", "other"):
        assert f"[{line_of(mark)}]" in failure.message, failure.message


@pytest.mark.parametrize("board", [1, 0], ids=["in shared memory", "by messages"])
def test_calls_in_another_order_are_told_with_both_lines(device, board):
    run_ranks(swapped, 2, device, environment=MODE | {"HCCL_LIKE_BOARD": str(board)})


def test_ranks_of_two_hosts_are_told(make_hosts):
    run_ranks(swapped, 2, "cpu", environment=MODE, hosts=make_hosts(2))


def unnoticed(rank, size):
    tensor = torch.ones(3)
    if rank == 0:
        dist.all_reduce(tensor)
    else:
        dist.all_reduce(tensor)
    assert tensor.tolist() == [2, 2, 2]


def test_lines_are_not_compared_without_the_mode():
    run_ranks(unnoticed, 2)


def from_the_same_lines(rank, size, device):
    tensor = torch.ones(3, device=device)
    for _, call in itertools.product(range(3), (dist.all_reduce, dist.barrier)):
        call(tensor) if call is dist.all_reduce else call()
    if rank == 0:
        dist.broadcast(tensor, 0)
        dist.scatter(tensor, [tensor.clone() for _ in range(size)], src=0)
        dist.send(tensor, 1)
    else:
        dist.broadcast(tensor, 0)
        dist.scatter(tensor, src=0)
        if rank == 1:
            dist.recv(tensor, 0)
    gathered = [None] * size
    dist.all_gather_object(gathered, rank)
    assert gathered == list(range(size))
    assert tensor.tolist() == [size**3] * 3


def test_calls_of_the_same_lines_pass_and_roots_and_messages_have_branches_of_their_own(device):
    run_ranks(from_the_same_lines, 3, device, environment=MODE)


def in_another_function(rank, size):
    def as_root():
        dist.broadcast(torch.ones(3), 0)

    def as_other():
        dist.broadcast(torch.ones(3), 0)

    with pytest.raises(dist.DistBackendError) as caught:
        as_root() if rank == 0 else as_other()
        dist.barrier()
    stay_until_all_are_here(rank, size)
    text = str(caught.value)
    assert "[as_root in python/test_call_sites.py]" in text
    assert "[as_other in python/test_call_sites.py]" in text


def test_calls_with_a_root_are_compared_by_function():
    run_ranks(in_another_function, 2, environment=MODE)


def test_the_mode_is_for_all_ranks():
    with pytest.raises(RankFailed, match="HCCL_LIKE_CALL_SITES is not set on rank 0 .* and 1 on rank 1"):
        run_ranks(unnoticed, 2, environment=lambda rank: MODE if rank else {})

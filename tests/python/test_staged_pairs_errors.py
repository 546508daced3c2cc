"""Slices of pairs of ranks that do not fit together, that never come, or that are given up: as with any other call."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from test_staged_calls import IN_ONE, SLICE, operations, staged

MOST = SLICE // 4  # float32 in a slice of a message


def ones(count):
    return torch.ones(count, device="sim")


# ------------------------------------------------------------------------------------------- ends that do not fit together


class Ends:
    """What rank 0 gives rank 1, and rank 1 expects, in elements."""

    @staticmethod
    def send(rank, count):
        dist.send(ones(count), 1) if rank == 0 else dist.recv(ones(count), 0)

    @staticmethod
    def gather(rank, count):
        dist.gather(ones(count if rank == 0 else 7), [ones(count), ones(7)] if rank == 1 else None, dst=1)

    @staticmethod
    def scatter(rank, count):
        dist.scatter(ones(count if rank == 1 else 7), [ones(7), ones(count)] if rank == 0 else None, src=0)

    @staticmethod
    def all_to_all(rank, count):
        given, taken = ([7, count], [7, 7]) if rank == 0 else ([7, 7], [count, 7])
        dist.all_to_all_single(ones(sum(taken)), ones(sum(given)), taken, given)

    @staticmethod
    def all_gather(rank, count):
        dist.all_gather([ones(count), ones(7)], ones(count if rank == 0 else 7))


# Rank 0's in full slices and elements beside them, and how many more rank 1's has.
SIZES = {
    "one slice or two": (1, -1, 1),
    "two slices with an empty second one, or three": (1, 0, MOST + 1),
    "as many slices": (2, 9, 1),
    "much and more": (3, 5, 4 * MOST),
    "little and much": (0, 1, 5 * MOST),
}


def of_two_sizes(rank, size, call, sizes):
    slices, add, more = SIZES[sizes]
    largest = MOST if call == "send" else MOST // size
    count = slices * largest + add + (more if rank == 1 else 0)
    with pytest.raises(dist.DistBackendError, match="disagree|gave up"):
        getattr(Ends, call)(rank, count)
        dist.all_reduce(ones(1))  # whoever was done before the other found out
    dist.destroy_process_group()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("call", ["send", "gather", "scatter", "all_to_all", "all_gather"])
def test_ends_that_differ_in_size_are_told(call, sizes, sim):
    staged(of_two_sizes, 2, call, sizes)


# --------------------------------------------------------------------------------------------------- what a call is made of


def numbers(rank, size):
    """How many operations the group counts."""
    whole = ones(5 * MOST)
    return [
        operations(lambda: dist.gather(whole, [ones(5 * MOST), ones(5 * MOST)] if rank == 0 else None)),
        operations(lambda: Ends.all_to_all(rank, 5 * MOST)),
        operations(lambda: Ends.send(rank, 5 * MOST)),
    ]


def test_no_numbers_are_taken_by_later_slices(sim):
    assert staged(numbers, 2) == staged(numbers, 2, environment=IN_ONE) == [[1, 1, 0]] * 2


# ------------------------------------------------------------------------------------------------------ what never comes


def without_the_other(rank, size):
    if rank == 1:
        return
    options = dist.AllToAllOptions()
    options.timeout, options.asyncOp = timedelta(seconds=1), True
    began = time.monotonic()
    work = dist.group.WORLD.alltoall_base(ones(2 * 3 * MOST), ones(2 * 3 * MOST), [3 * MOST] * 2, [3 * MOST] * 2, options)
    with pytest.raises(dist.DistBackendError, match="all_to_all"):
        work.wait()
    assert time.monotonic() - began < 30
    dist.group.WORLD.abort()
    dist.destroy_process_group()


def test_an_exchange_that_the_others_do_not_make_times_out(sim):
    staged(without_the_other, 2)


def given_up(rank, size):
    """A message whose other end is never there ends with the group; so do those behind it and those without a thread."""
    works = [dist.irecv(ones(3 * MOST), 1 - rank, tag=tag) for tag in (0, 0, 1, 2, 3, 4, 5)]
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        dist.group.WORLD._get_backend(torch.device("sim")).abort()
    for work in works:
        with pytest.raises(dist.DistBackendError, match="abort|gave up"):
            work.wait()
    dist.destroy_process_group()


def test_abort_ends_messages_that_wait(sim):
    staged(given_up, 2)


def lost(rank, size):
    """The other rank leaves."""
    if rank == 1:
        dist.destroy_process_group()
        return
    with pytest.raises(dist.DistBackendError, match="rank 1|gave up"):
        dist.recv(ones(3 * MOST), 1)
    dist.destroy_process_group()


def test_a_message_of_a_rank_that_left_is_not_waited_for(sim):
    staged(lost, 2)

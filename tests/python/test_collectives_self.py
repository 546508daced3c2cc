"""Messages from a rank to itself."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from ranks import run_ranks


def numbers(rank, tag, count=11):
    return torch.arange(count, dtype=torch.float32) * (tag + 1) + rank


def to_itself(rank, size, device):
    for count in (0, 1, 11, 300_001):
        for sends_first in (True, False):
            out, into = numbers(rank, 1, count).to(device), torch.full((count,), -1.0, device=device)
            works = [lambda: dist.isend(out, rank), lambda: dist.irecv(into, rank)]
            works = [work() for work in (works if sends_first else works[::-1])]
            for work in works:
                work.wait()
            assert values.equal(into, numbers(rank, 1, count)), count
    assert works[0]._source_rank() == rank


@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_sends_to_itself(device, size):
    run_ranks(to_itself, size, device)


def tags_cross(rank, size, device):
    """Tags are matched, not the order of the calls; messages of one tag come in order."""
    tags = [3, 0, 7, 3]
    outs = [numbers(i, tag).to(device) for i, tag in enumerate(tags)]
    sends = [dist.isend(out, rank, tag=tag) for out, tag in zip(outs, tags)]
    intos = {}
    for place, tag in [(2, 7), (0, 3), (1, 0), (3, 3)]:
        intos[place] = torch.zeros(11, device=device)
        sends.append(dist.irecv(intos[place], rank, tag=tag))
    for work in sends:
        work.wait()
    for place, tag in enumerate(tags):
        assert values.equal(intos[place], numbers(place, tag))


def test_tags_of_messages_to_oneself_are_matched(device):
    run_ranks(tags_cross, 2, device)


def in_a_batch(rank, size, device):
    """Everybody sends to everybody, itself included."""
    outs = [numbers(rank, peer).to(device) for peer in range(size)]
    intos = [torch.zeros(11, device=device) for _ in range(size)]
    operations = [dist.P2POp(dist.isend, outs[peer], peer) for peer in range(size)]
    operations += [dist.P2POp(dist.irecv, intos[peer], peer) for peer in range(size)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for peer in range(size):
        assert values.equal(intos[peer], numbers(peer, rank))


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_may_hold_messages_to_oneself(device, size):
    run_ranks(in_a_batch, size, device)


def from_anybody(rank, size, device):
    """A receive from any source takes what is there, one's own messages too."""
    heard = []
    own = dist.isend(torch.tensor([float(rank)], device=device), rank, tag=5)
    other = dist.isend(torch.tensor([float(rank)], device=device), 1 - rank, tag=5)
    for _ in range(2):
        into = torch.zeros(1, device=device)
        work = dist.irecv(into, None, tag=5)
        work.wait()
        assert into.item() == work._source_rank()
        heard.append(into.item())
    own.wait()
    other.wait()
    assert sorted(heard) == [0, 1]


def test_a_receive_from_any_rank_hears_itself(device):
    run_ranks(from_anybody, 2, device)


def wrong_size(rank, size, device):
    group = dist.new_group([rank], use_local_synchronization=True)
    with pytest.raises(RuntimeError, match="Every rank must make the same calls"):
        first = dist.isend(torch.ones(4, device=device), rank, group=group)
        second = dist.irecv(torch.ones(5, device=device), rank, group=group)
        first.wait()
        second.wait()
        if device != "cpu":
            torch.sim.synchronize()
            dist.barrier(group)
    lonely = dist.new_group([rank], timeout=timedelta(milliseconds=300), use_local_synchronization=True)
    with pytest.raises(RuntimeError, match=f"send #1 .*reached its timeout after .*waiting for rank {0}"):
        dist.isend(torch.ones(4), rank, group=lonely).wait()
    dist.barrier()


def test_messages_to_oneself_that_do_not_fit_or_have_no_other_end_are_errors(device):
    run_ranks(wrong_size, 2, device)

"""Each collective as the benchmarks run it: its buffers, its call, its right answer, its bandwidth factor.

`count` is what nccl-tests prints under that name: the elements that one rank contributes or receives; the size of a row
is the larger of the send and the receive buffer. The factors turn algbw into busbw (nccl-tests: doc/PERFORMANCE.md).
"""

from dataclasses import dataclass
from typing import Callable

import torch
import torch.distributed as dist

from . import inputs
from .types import REDUCTIONS, Type


@dataclass(frozen=True)
class Case:
    """One row, seen from one rank."""

    rank: int
    ranks: int
    count: int
    kind: Type
    op: str
    root: int
    device: torch.device
    asynchronous: bool = True

    def empty(self, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=self.kind.dtype, device=self.device)

    def share(self, whole: torch.Tensor, rank: int) -> torch.Tensor:
        return whole[rank * self.count : (rank + 1) * self.count]

    def values(self, rank: int, count: int, salt: int) -> torch.Tensor:
        return inputs.values(self.kind, self.op, rank, self.ranks, count, salt)


Buffers = tuple[torch.Tensor, torch.Tensor]  # (send, receive); the same memory, or a part of it, when in place


@dataclass(frozen=True)
class Collective:
    """Plain functions, because every collective differs from the others in all of them."""

    name: str
    send_shares: bool  # the send buffer holds one count for every rank rather than one count
    receive_shares: bool
    reduces: bool
    rooted: bool
    factor: Callable[[int], float]
    issue: Callable  # (case, send, receive, group) -> works that wait() finishes
    expected: Callable  # (case, salt) -> what `receive` holds afterwards, None where it is undefined
    forms: tuple[str, ...] = ("out_of_place", "in_place")

    def size(self, count: int, ranks: int) -> int:
        """The elements of the larger buffer."""
        return count * ranks if self.send_shares or self.receive_shares else count

    def count(self, elements: int, ranks: int) -> int:
        """The count for a row of `elements` at most."""
        return elements // ranks if self.send_shares or self.receive_shares else elements

    def buffers(self, case: Case, form: str) -> Buffers:
        send_count = case.count * (case.ranks if self.send_shares else 1)
        receive_count = case.count * (case.ranks if self.receive_shares else 1)
        if form == "out_of_place":
            return case.empty(send_count), case.empty(receive_count)
        whole = case.empty(max(send_count, receive_count))
        place = case.root if self.rooted else case.rank
        if send_count == receive_count:
            return whole, whole
        if self.rooted and case.rank != case.root:
            return case.empty(send_count), case.empty(receive_count)
        part = case.share(whole, place)
        return (part, whole) if self.receive_shares else (whole, part)


# torch 2.13 renamed two calls and warns about the old names.
_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def _one(work) -> list:
    return [work] if work is not None else []  # a synchronous call is over


def _all_reduce(case, send, receive, group):
    return _one(dist.all_reduce(receive, REDUCTIONS[case.op], group=group, async_op=case.asynchronous))


def _reduce(case, send, receive, group):
    return _one(dist.reduce(receive, case.root, REDUCTIONS[case.op], group=group, async_op=case.asynchronous))


def _broadcast(case, send, receive, group):
    return _one(dist.broadcast(receive, case.root, group=group, async_op=case.asynchronous))


def _all_gather(case, send, receive, group):
    return _one(_gather_single(receive, send, group=group, async_op=case.asynchronous))


def _reduce_scatter(case, send, receive, group):
    return _one(_reduce_scatter_single(receive, send, REDUCTIONS[case.op], group=group, async_op=case.asynchronous))


def _alltoall(case, send, receive, group):
    return _one(dist.all_to_all_single(receive, send, group=group, async_op=case.asynchronous))


def _gather(case, send, receive, group):
    into = [case.share(receive, rank) for rank in range(case.ranks)] if case.rank == case.root else None
    return _one(dist.gather(send, into, case.root, group=group, async_op=case.asynchronous))


def _scatter(case, send, receive, group):
    parts = [case.share(send, rank) for rank in range(case.ranks)] if case.rank == case.root else None
    return _one(dist.scatter(receive, parts, case.root, group=group, async_op=case.asynchronous))


def _sendrecv(case, send, receive, group):
    """Round the ring: to the next rank, from the one before."""
    after, before = (case.rank + 1) % case.ranks, (case.rank - 1) % case.ranks
    return [dist.isend(send, after, group=group), dist.irecv(receive, before, group=group)]


def _barrier(case, send, receive, group):
    return _one(dist.barrier(group=group, async_op=case.asynchronous))


def _reduced(case, salt):
    return inputs.reduced(case.kind, case.op, case.ranks, case.count, salt)


def _reduced_at_root(case, salt):
    return _reduced(case, salt) if case.rank == case.root else None


def _reduced_share(case, salt):
    whole = inputs.reduced(case.kind, case.op, case.ranks, case.count * case.ranks, salt)
    return case.share(whole, case.rank)


def _of_root(case, salt):
    return case.values(case.root, case.count, salt)


def _gathered(case, salt):
    return torch.cat([case.values(rank, case.count, salt) for rank in range(case.ranks)])


def _gathered_at_root(case, salt):
    return _gathered(case, salt) if case.rank == case.root else None


def _share_of_each(case, salt):
    whole = case.count * case.ranks
    return torch.cat([case.share(case.values(rank, whole, salt), case.rank) for rank in range(case.ranks)])


def _share_of_root(case, salt):
    return case.share(case.values(case.root, case.count * case.ranks, salt), case.rank)


def _of_previous(case, salt):
    return case.values((case.rank - 1) % case.ranks, case.count, salt)


def _fraction(ranks: int) -> float:
    return (ranks - 1) / ranks


def _whole(ranks: int) -> float:
    return 1.0


IN_PLACE = ("in_place",)  # c10d has no other form of these
OUT_OF_PLACE = ("out_of_place",)

COLLECTIVES = {
    c.name: c
    for c in (
        Collective("all_reduce", False, False, True, False, lambda n: 2 * (n - 1) / n, _all_reduce, _reduced, IN_PLACE),
        Collective("all_gather", False, True, False, False, _fraction, _all_gather, _gathered),
        Collective("reduce_scatter", True, False, True, False, _fraction, _reduce_scatter, _reduced_share),
        Collective("alltoall", True, True, False, False, _fraction, _alltoall, _share_of_each, OUT_OF_PLACE),
        Collective("broadcast", False, False, False, True, _whole, _broadcast, _of_root, IN_PLACE),
        Collective("reduce", False, False, True, True, _whole, _reduce, _reduced_at_root, IN_PLACE),
        Collective("gather", False, True, False, True, _fraction, _gather, _gathered_at_root),
        Collective("scatter", True, False, False, True, _fraction, _scatter, _share_of_root),
        Collective("sendrecv", False, False, False, False, _whole, _sendrecv, _of_previous, OUT_OF_PLACE),
        Collective("barrier", False, False, False, False, _whole, _barrier, lambda case, salt: None, OUT_OF_PLACE),
    )
}

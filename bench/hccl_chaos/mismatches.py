"""Ranks that make different calls: rank 1 another than all others."""

import torch
import torch.distributed as dist

from .case import Case
from .job import Outcome, Rank


def _different(usual, other):
    def function(rank: Rank) -> Outcome:
        rank.begin()
        dist.barrier()
        # A rank that has sent its part and got all of its own may hear of it in its next call.
        return rank.attempt(lambda: ((other if rank.rank == 1 else usual)(rank.size), dist.barrier()))

    return function


def _case(name, usual, other):
    return Case(f"differ-{name}", f"ranks differ in {name}", _different(usual, other), names=("ank",))


def _split(size, given, taken):
    dist.all_to_all_single(torch.ones(sum(taken)), torch.ones(sum(given)), taken, given)


def _order(first, second):
    dist.all_reduce(torch.ones(first))
    dist.all_reduce(torch.ones(second))


CASES = [
    _case("shape", lambda n: dist.all_reduce(torch.ones(300)), lambda n: dist.all_reduce(torch.ones(334))),
    _case("large-shape", lambda n: dist.all_reduce(torch.ones(2 << 20)), lambda n: dist.all_reduce(torch.ones(3 << 20))),
    _case("type", lambda n: dist.all_reduce(torch.ones(300)), lambda n: dist.all_reduce(torch.ones(300, dtype=torch.int32))),
    _case("operation", lambda n: dist.all_reduce(torch.ones(300)),
          lambda n: dist.all_reduce(torch.ones(300), dist.ReduceOp.MAX)),
    _case("collective", lambda n: dist.all_reduce(torch.ones(300)), lambda n: dist.broadcast(torch.ones(300), 0)),
    _case("root", lambda n: dist.broadcast(torch.ones(300), 0), lambda n: dist.broadcast(torch.ones(300), 1)),
    _case("split", lambda n: _split(n, [10] * n, [10] * n), lambda n: _split(n, [10] * n, [9, 10] + [10] * (n - 2))),
    _case("order", lambda n: _order(300, 301), lambda n: _order(301, 300)),
]

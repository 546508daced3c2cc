"""A rank is killed, and the others go on in the same processes."""

import time

import torch.distributed as dist

from . import needs
from .case import Case, Measure
from .faults import kill_me
from .job import Outcome, Rank

ELEMENTS = 1 << 18


def _sum(rank: Rank, size: int) -> None:
    """An all_reduce, which must be right."""
    tensor = rank.ones(ELEMENTS).mul_(dist.get_rank() + 1)
    dist.all_reduce(tensor)
    rank.synchronize()
    assert tensor.eq(size * (size + 1) // 2).all(), f"a wrong sum of {size} ranks: {tensor[:3]}"


def _until_it_fails(rank: Rank) -> None:
    try:
        while True:
            dist.all_reduce(rank.ones(ELEMENTS))
            rank.synchronize()
    except dist.DistBackendError:
        pass


def _left_in_order(outcome: Outcome) -> Outcome:
    """A rank that ends as soon as it has its sum would be one more that the others lose, if they are still at theirs."""
    if outcome.kind == "done":
        dist.destroy_process_group()
    return outcome


def _shrunk(rank: Rank) -> Outcome:
    rank.begin()
    _sum(rank, rank.size)
    rank.meet("ready")
    if rank.rank == 1:
        time.sleep(0.2)  # the others are in a call
        rank.fault_now()
        kill_me()
    _until_it_fails(rank)

    def go_on():
        begin = time.monotonic()
        dist.shrink_group([1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
        rank.figures["shrink"] = time.monotonic() - begin
        _sum(rank, rank.size - 1)

    return _left_in_order(rank.attempt(go_on))


def _joined_again(rank: Rank) -> Outcome:
    """The same, by a new group of those who are left."""
    rank.begin()
    _sum(rank, rank.size)
    rank.meet("ready")
    if rank.rank == rank.size - 1:
        time.sleep(0.2)
        rank.fault_now()
        kill_me()
    _until_it_fails(rank)

    def go_on():
        dist.destroy_process_group()
        rank.size -= 1
        rank.begin()
        _sum(rank, rank.size)

    return _left_in_order(rank.attempt(go_on))


SHRINK = {
    "victims": (1,),
    "kind": "done",
    "within": lambda timeout: 3.0,
    "measures": (Measure("shrink", "shrink_group takes", 3.0, "s"),),
    "trials": 5,
}
CASES = [
    Case("shrink", "a rank is killed, the others shrink the group", _shrunk, **SHRINK),
    Case("shrink-sim", "the same on a device", _shrunk, device="sim", needs=needs.simulator, **SHRINK),
    Case("shrink-tcp", "the same between ranks that have TCP only", _shrunk, environment={"HCCL_LIKE_TRANSPORTS": "tcp"}, **SHRINK),
    Case("join-again", "a rank is killed, the others make a new group through the same store", _joined_again, (3,), "done",
         within=lambda timeout: 3.0, trials=5),
]

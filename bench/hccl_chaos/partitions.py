"""Networks that fail between hosts: two network namespaces with two ranks each."""

import threading
import time

import torch.distributed as dist

from . import needs
from .case import Case
from .faults import CALL
from .job import Outcome, Rank

OUTAGE = 2.0  # seconds that a job must outlast
NOTICED = 5.0  # seconds after which a host that is gone must be missed
HEALED = 4.0  # seconds after an outage in which it must work again: TCP tries again after 1.6 s at the latest, and then 3.2
ELEMENTS = 1 << 20
HERE = {"hosts": 2, "needs": needs.firewall, "timeout": 12}  # longer than it may take until it is noticed


def _cut_cable(rank: Rank) -> None:
    rank.hosts.cable(1, "down")


def _lose_packets(rank: Rank) -> None:
    rank.hosts[1].drop()


def _lose_packets_one_way(rank: Rank) -> None:
    """Host 0 hears host 1, but not the other way round."""
    rank.hosts[0].drop(to=rank.hosts[1].address())


def _cut(fault, elements: int, waits: bool = False):
    """`waits`: a rank of each host waits for a message of the other, and nothing is under way."""

    def call(rank: Rank):
        if waits:
            dist.recv(rank.ones(1), (rank.rank + rank.size // 2) % rank.size)
            return
        tensor = rank.ones(elements)
        while True:
            dist.all_reduce(tensor.fill_(1))
            assert tensor[0] == rank.size

    def function(rank: Rank) -> Outcome:
        rank.begin()
        if waits:  # connects those who wait for each other
            other = (rank.rank + rank.size // 2) % rank.size
            work = dist.isend(rank.ones(1), other)
            dist.recv(rank.ones(1), other)
            work.wait()
        dist.all_reduce(rank.ones(elements))
        rank.meet("ready")
        if rank.rank == 0:
            threading.Timer(0.5, lambda: (rank.fault_now(), fault(rank))).start()
        return rank.attempt(lambda: call(rank))

    return function


def _outage(fault, mend):
    def function(rank: Rank) -> Outcome:
        rank.begin()
        tensor = rank.ones(ELEMENTS)
        dist.all_reduce(tensor)
        rank.meet("ready")
        ended = threading.Event()
        if rank.rank == 0:

            def fail_for_a_while():
                fault(rank)
                time.sleep(OUTAGE)
                mend(rank)
                rank.fault_now()
                ended.set()

            threading.Timer(0.3, fail_for_a_while).start()

        def job():
            going_on, rounds = rank.ones(1), 0
            while going_on.item() and rounds < 1_000_000:  # until rank 0 says that the network works again, and once more
                dist.all_reduce(tensor.fill_(1))
                assert tensor.eq(rank.size).all()
                going_on.fill_(0 if ended.is_set() else 1)
                dist.broadcast(going_on, 0)
                rounds += 1

        outcome = rank.attempt(job)
        rank.meet("over")  # nobody leaves while others wait for what it has sent
        return outcome

    return function


def _mend_cable(rank: Rank) -> None:
    rank.hosts.cable(1, "up")


def _mend_packets(rank: Rank) -> None:
    rank.hosts[1].heal()


def _gone(name: str, what: str, fault, **how) -> Case:
    call = () if how.get("waits") else (CALL,)
    return Case(name, what, _cut(fault, ELEMENTS, **how), names=(r"lost rank \d \(host\d\)", *call), within=lambda timeout: NOTICED,
                **HERE)


CASES = [
    _gone("cable", "the cable of a host is pulled out", _cut_cable),
    _gone("silent-host", "all that comes in at a host is lost", _lose_packets),
    _gone("one-way", "a host is heard, but hears nothing", _lose_packets_one_way),
    _gone("silent-idle", "a host goes silent while ranks wait for it and nothing is under way", _lose_packets, waits=True),
    Case("outage-cable", f"a cable is pulled out for {OUTAGE:.0f} s", _outage(_cut_cable, _mend_cable), kind="done",
         within=lambda timeout: HEALED, **HERE),
    Case("outage-packets", f"a host hears nothing for {OUTAGE:.0f} s", _outage(_lose_packets, _mend_packets), kind="done",
         within=lambda timeout: HEALED, **HERE),
]

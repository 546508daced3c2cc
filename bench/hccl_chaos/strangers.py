"""Strangers at the doors of a running job: whatever they say, however many they are."""

import os
import time

import torch.distributed as dist

from .case import Case, Measure
from .intruder import (
    Doorkeeper,
    Intruder,
    News,
    bytes_told,
    descriptors,
    hello,
    knock,
    listening_ports,
    many_descriptors,
    stay,
)
from .job import Outcome, Rank

MANY = 1000  # at the door of each rank
PATIENCE = 10  # seconds after a visit until whoever is left counts as left
GARBAGE = [bytes(8), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(range(256)) * 16, b""]
HALF = hello("0" * 32)[:60]


def _visits(words: list[bytes]):
    """Connections that stay open on the visitors' side until it is over."""

    def visit(news: News) -> dict:
        told = news.wait()
        many_descriptors()
        connections = [knock(told["port"], words[i % len(words)]) for i in range(told["count"])]
        return stay(connections)

    return visit


def _slow_visits(news: News) -> dict:
    """Sixty-four at a time say a hello by one byte in 50 ms, in three rounds."""
    told = news.wait()
    count, answer = 0, 0
    for _ in range(3):
        connections = [knock(told["port"], b"") for _ in range(64)]
        words = hello("0" * 32)
        for place in range(30):
            for one in connections:
                try:
                    one.send(words[place : place + 1])
                except OSError:
                    pass
            time.sleep(0.05)
        count, answer = count + len(connections), answer + bytes_told(connections)
        for one in connections:
            one.close()
    return {"made": count, "told": answer}


def call_until(rank: Rank, tensor, over) -> int:
    """All ranks together, until it is over for each; how many calls it were."""
    left, calls = rank.ones(1), 0
    while left.item():
        dist.all_reduce(tensor.fill_(1))
        assert tensor.eq(rank.size).all()
        left.fill_(0 if over() else 1)
        dist.all_reduce(left)
        calls += 1
    return calls


def descriptors_at_rest(rank: Rank, tensor) -> int:
    """How many this rank has when calls have long opened no more: ranks that exchange connect after some."""
    seen = []

    def stays() -> bool:
        time.sleep(0.01)
        seen.append(descriptors())
        return len(seen) >= 20 and len(set(seen[-20:])) == 1

    call_until(rank, tensor, stays)
    return seen[-1]


def visited(visit, first=lambda rank: {}, meanwhile=lambda rank: None):
    """`first(rank)`: what the visitor is told besides the rank's port. `meanwhile(rank)`: a call that must work during the visit."""

    def function(rank: Rank) -> Outcome:
        intruder = Intruder(visit)
        rank.begin()
        keeper = Doorkeeper(os.path.join(rank.folder, f"door.{rank.rank}"))
        tensor = rank.ones(1000)
        dist.all_reduce(tensor)
        told = first(rank)
        keeper.refused()
        before = descriptors_at_rest(rank, tensor)
        ports = listening_ports()
        if not ports:
            return Outcome("raised", text="listens on no port")

        def job():
            intruder.send_in(port=ports[0], count=MANY // 10 if rank.quick else MANY, **told)
            meanwhile(rank)
            calls = call_until(rank, tensor, intruder.is_done)
            made, end = intruder.answer["made"], time.monotonic()

            def all_are_out() -> bool:
                """Looked at between calls in which ranks wait for each other, which is when they look at their doors."""
                time.sleep(0.05 * rank.rank)
                rank.figures["open"] = descriptors()  # at one moment: other threads open a file now and then
                return rank.figures["open"] <= before - 2 and sum(keeper.refused().values()) >= made  # the visitor's pipes are closed

            call_until(rank, tensor, lambda: all_are_out() or time.monotonic() > end + PATIENCE)
            rank.figures |= {
                "out": time.monotonic() - end,
                "descriptors": rank.figures.pop("open") + 2 - before,
                "told": intruder.answer["told"],
                "uncounted": made - sum(keeper.refused().values()),
                "made": made,
                "calls": calls,
            }
            with open(os.path.join(rank.folder, "log")) as log:
                rank.figures["logged"] = sum("refused" in line and "connection" in line for line in log)

        outcome = rank.attempt(job)
        keeper.close()
        return outcome

    return function


MEASURES = (
    Measure("out", "the last one is out, after the visit, in", 2, "s"),
    Measure("descriptors", "more descriptors than before", 0),
    Measure("told", "bytes that a stranger was told", 0),
    Measure("uncounted", "attempts that were not counted", 0),
    Measure("logged", "lines of the log that tell of them", 1, of="min", at_least=True),
)
LOG = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": "{folder}/log"}
UNHARMED = {"kind": "done", "ranks": 2, "measures": MEASURES, "environment": LOG, "slack": 60, "within": None}
CASES = [
    Case("garbage", f"{MANY:,} strangers at each door say something else", visited(_visits(GARBAGE)), **UNHARMED),
    Case("held", f"{MANY:,} strangers at each door say nothing", visited(_visits([b""])), **UNHARMED),
    Case("half-hello", f"{MANY:,} strangers at each door begin as a peer would, and wait", visited(_visits([HALF])), **UNHARMED),
    Case("slow-hello", "64 at a time begin as a peer would, a byte in 50 ms", visited(_slow_visits), **UNHARMED),
]

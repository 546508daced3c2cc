"""Which records of different ranks are of one call, and who came last to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hccl_like._dumps import Dump, Group, Record

# No rank is through with one of these before all ranks have come.
_ALL_WAIT = ("all_reduce", "allreduce", "all_gather", "_all_gather", "reduce_scatter", "_reduce_scatter", "all_to_all", "alltoall", "barrier")


@dataclass(frozen=True)
class Call:
    """A collective call or a message, with the records of its ranks that were found (global numbers)."""

    group: Group
    records: dict[int, Record]
    absent: tuple[int, ...] = ()  # ranks that never came
    is_complete: bool = True  # all ranks are in `records` or in `absent`

    @property
    def all_wait(self) -> bool:
        first = next(iter(self.records.values()))
        return not first.is_message and first.name.startswith(_ALL_WAIT)

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks that others may have to wait for."""
        if self.all_wait:
            return tuple(self.records)
        return tuple(rank for rank, record in self.records.items() if record.name == "send")


def arrival(record: Record) -> int:
    """When the rank came to the call: on a device when its stream had, which is known once the call is over."""
    return record.started if record.is_final and record.started else record.created


def calls(dumps: list[Dump]) -> list[Call]:
    groups: dict[str, Group] = {}
    for dump in dumps:
        groups |= dump.groups
    return [*_collectives(dumps, groups), *_messages(dumps, groups)]


def _collectives(dumps: list[Dump], groups: dict[str, Group]) -> Iterator[Call]:
    # A block of calls has one number, so its calls are told apart by their place in it.
    found: dict[tuple[str, int, int], dict[int, Record]] = defaultdict(dict)
    last: dict[tuple[str, int], int] = {}
    for dump in dumps:
        place: dict[tuple[str, int], int] = defaultdict(int)
        for record in dump.records:
            if not record.is_message:
                key = (record.group, record.number)
                found[record.group, record.number, place[key]][dump.rank] = record
                place[key] += 1
                last[record.group, dump.rank] = record.number
    known = {dump.rank for dump in dumps}
    for (name, number, _), records in found.items():
        others = [rank for rank in groups[name].ranks if rank not in records]
        absent = tuple(rank for rank in others if rank in known and last.get((name, rank), 0) < number)
        yield Call(groups[name], records, absent, len(absent) == len(others))


def _messages(dumps: list[Dump], groups: dict[str, Group]) -> Iterator[Call]:
    """The n-th send of a pair is the n-th receive, where no ring has lost any."""
    lines: dict[tuple[str, int, int], dict[str, list[Record]]] = defaultdict(lambda: {"send": [], "recv": []})
    for dump in dumps:
        for record in dump.records:
            if record.is_message and record.peer is not None and dump.is_whole:
                peer = groups[record.group].ranks[record.peer]
                sender, receiver = (dump.rank, peer) if record.name == "send" else (peer, dump.rank)
                lines[record.group, sender, receiver][record.name].append(record)
    for (name, *_), both in lines.items():
        for sent, received in zip(both["send"], both["recv"]):
            yield Call(groups[name], {sent.rank: sent, received.rank: received})

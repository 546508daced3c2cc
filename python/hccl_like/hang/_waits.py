"""Which rank waits in which call for which others, by the ranks' records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from hccl_like._dumps import Dump, Group, Record


@dataclass(frozen=True)
class Wait:
    """A rank's oldest unfinished call of a group, and the ranks that have not come to it (global numbers)."""

    rank: int
    record: Record
    absent: frozenset[int]  # their dumps do not have the call
    silent: frozenset[int]  # of which there is no usable dump


class Job:
    """The records of all ranks, by group and number."""

    def __init__(self, dumps: Iterable[Dump]):
        self.dumps = {dump.rank: dump for dump in dumps}
        self.groups: dict[str, Group] = {}
        self._calls: dict[tuple[str, int], dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
        self._last: dict[tuple[str, int], Record] = {}
        for dump in self.dumps.values():
            self.groups |= dump.groups
            for record in dump.records:
                if record.is_message:
                    continue
                self._calls[record.group, record.number][record.rank].append(record)
                self._last[record.group, record.rank] = record
        self.newest = max((dump.newest for dump in self.dumps.values()), default=0)

    def ranks(self) -> list[int]:
        return sorted({rank for group in self.groups.values() for rank in group.ranks} | set(self.dumps))

    def at(self, group: str, number: int) -> dict[int, list[Record]]:
        """The ranks' records of one collective call: several where it is a block of calls."""
        return self._calls.get((group, number), {})

    def last(self, group: str, rank: int) -> Record | None:
        """The last collective call of a rank in a group."""
        return self._last.get((group, rank))

    def last_common(self, group: str) -> Record | None:
        """The last call of a group that all its ranks have ended, as far as there are dumps."""
        members = [rank for rank in self.groups[group].ranks if rank in self.dumps]
        for number in sorted((number for name, number in self._calls if name == group), reverse=True):
            records = self.at(group, number)
            if all(rank in records and all(record.is_over for record in records[rank]) for rank in members):
                return records[members[0]][0]
        return None

    def waits(self) -> list[Wait]:
        """Of every rank and group, the oldest first."""
        found = []
        for dump in self.dumps.values():
            seen = set()
            for record in dump.records:
                key = (record.group, record.is_message, record.peer, record.name if record.is_message else "")
                if record.is_over or key in seen:
                    continue
                seen.add(key)
                found.append(self._message(record) if record.is_message else self._collective(record))
        return sorted(found, key=lambda wait: wait.record.created)

    def _collective(self, record: Record) -> Wait:
        there = self.at(record.group, record.number)
        missing = [rank for rank in self.groups[record.group].ranks if rank not in there and not self._is_past(rank, record)]
        return self._wait(record, missing)

    def _is_past(self, rank: int, record: Record) -> bool:
        """Whether a rank without the record has made later calls of the group: its ring has lost this one."""
        last = self.last(record.group, rank)
        return last is not None and last.number > record.number

    def _message(self, record: Record) -> Wait:
        """The peer counts as there while it is in the other end of a message of the same pair."""
        if record.peer is None:
            return self._wait(record, [])
        ranks = self.groups[record.group].ranks
        peer, here = ranks[record.peer], ranks.index(record.rank)
        other = "recv" if record.name == "send" else "send"
        has_come = peer in self.dumps and any(
            theirs.is_message and not theirs.is_over and theirs.group == record.group and theirs.name == other
            and theirs.peer in (here, None) for theirs in self.dumps[peer].records
        )  # fmt: skip
        return self._wait(record, [] if has_come else [peer])

    def _wait(self, record: Record, missing: list[int]) -> Wait:
        # A dump from before the call says nothing of it. A second, because hosts' clocks differ.
        silent = {rank for rank in missing if rank not in self.dumps or self.dumps[rank].written < record.created - 1_000_000_000}
        return Wait(record.rank, record, frozenset(missing) - silent, frozenset(silent))


def signature(records: list[Record]) -> tuple:
    """What all ranks of a collective call must agree about, of what a dump tells."""
    return tuple((record.name, _shapes(record)) for record in records)


def _shapes(record: Record) -> tuple[str, ...]:
    if record.name == "gather":  # the root alone has outputs
        return record.inputs
    if record.name == "scatter":
        return record.outputs
    if record.name.startswith(("all_to_all", "alltoall")):  # each rank has its own
        return ()
    return (*record.inputs, *record.outputs)


def varieties(there: dict[int, list[Record]]) -> list[tuple[list[int], list[Record]]]:
    """The ranks that agree with each other and the records of one of them, the most first."""
    by_signature: dict[tuple, list[int]] = defaultdict(list)
    for rank in sorted(there):
        by_signature[signature(there[rank])].append(rank)
    return [(ranks, there[ranks[0]]) for ranks in sorted(by_signature.values(), key=len, reverse=True)]


def roots(waits: list[Wait]) -> list[int]:
    """The ranks that others wait for and that wait for nobody, those with most waiters first."""
    waiting = {wait.rank for wait in waits if wait.absent | wait.silent}
    awaited = Counter(rank for wait in waits for rank in wait.absent | wait.silent if rank not in waiting)
    return [rank for rank, _ in sorted(awaited.items(), key=lambda item: (-item[1], item[0]))]


def circle(waits: list[Wait]) -> list[Wait]:
    """Waits each of which is for the rank of the next, and the last for that of the first; empty if there are none."""
    ahead: dict[int, list[tuple[Wait, int]]] = defaultdict(list)
    for wait in waits:
        ahead[wait.rank] += [(wait, rank) for rank in sorted(wait.absent)]

    def follow(rank: int, trail: list[Wait]) -> list[Wait]:
        for place, wait in enumerate(trail):
            if wait.rank == rank:
                return trail[place:]
        if rank in done:
            return []
        done.add(rank)
        return next((found for wait, other in ahead[rank] if (found := follow(other, [*trail, wait]))), [])

    done: set[int] = set()
    return next((found for rank in sorted(ahead) if (found := follow(rank, []))), [])

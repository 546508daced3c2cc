"""What a job did between two looks at its counters: rates, who waits for whom, who comes last."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, field

from hccl_like.hang import _processes
from hccl_like.top._file import Calls, Group, Peer, Process

_MESSAGES = ("send", "recv")
# A rank is said to come last when the others waited for it for this part of the time.
_LAGS = 0.2
# A rank that could run, and had no processor for this part of the time; and a process that takes so much of one, in a look of so many seconds.
_DELAYED, _HOGS, _LOOK = 0.2, 0.2, 0.3


def job_name(job: int) -> str:
    """"j4f2a91c0": never a number, so that it cannot be taken for a process id. "-" before there is a group."""
    return f"j{job >> 32:08x}" if job else "-"


@dataclass(frozen=True)
class Row:
    """One rank in one group."""

    rank: int  # global
    host: str
    pid: int
    group: str
    group_id: int
    group_rank: int
    group_size: int
    calls_per_s: float
    bytes_per_s: float
    in_calls: float  # part of the time in calls of the group; above 1 where several overlap
    waited: float  # part of the time by which it was in collectives longer than the rank that came last
    running: int
    latest: str  # "all_reduce #812", or empty
    running_s: float  # since the first of the running calls began, or one ended
    waits_for: list[int]  # global ranks, shown ones only
    errors: int  # calls that failed or were refused, since the group was made
    calls: dict[str, dict[str, int]]  # since the group was made


@dataclass(frozen=True)
class Link:
    """Messages between a rank of this host and another rank."""

    rank: int
    peer: int
    transport: str
    messages_per_s: float  # both ways
    sent_bytes_per_s: float
    received_bytes_per_s: float
    reconnected: int  # since the start


@dataclass(frozen=True)
class View:
    job: str
    size: int
    seconds: float  # between the two looks
    headline: str
    slow: list[int]  # the ranks that the headline names
    rows: list[Row] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    lag: list[tuple[int, float]] = field(default_factory=list)  # global rank, how long others waited for it; the most first
    elsewhere: list[int] = field(default_factory=list)  # ranks that are not shown
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict:
        return asdict(self)


def view(before: list[Process], now: list[Process], silent: dict[int, str] | None = None) -> View:
    """`now`: the ranks of one job, not empty. A rank that is not in `before` counts from zero time. `silent`: a sentence for each rank that was
    asked and has not answered."""
    return _Looker(before, now, silent or {}).view()


class _Looker:
    def __init__(self, before: list[Process], now: list[Process], silent: dict[int, str]):
        self.now = now
        self.before = {(one.key, group.serial): (one, group) for one in before for group in one.groups}
        self.processes = {one.key: one for one in before}
        self.silent = silent
        starts = {one.host: one.read_ns for one in sorted(before or now, key=lambda one: -one.read_ns)}  # the first look on each host's clock
        self.seconds = max(1e-9, *((one.read_ns - starts.get(one.host, one.read_ns)) / 1e9 for one in now))
        self.states = {one.key: "runs" if one.host else _processes.state(one.pid) for one in now}
        self.members: dict[int, list[tuple[Process, Group]]] = {}
        for one in now:
            for group in one.groups:
                self.members.setdefault(group.id, []).append((one, group))

    def view(self) -> View:
        size = max(one.size for one in self.now)
        here = {one.rank for one in self.now}
        rows = [self._row(one, group) for one in self.now for group in one.groups]
        lag = self._lags()
        headline, slow = self._headline(rows, lag)
        notes = [f"rank {one.rank} has {one.uncounted} groups or connections more: a process shows 128 and 256" for one in self.now if one.uncounted]
        notes += self.silent.values()
        elsewhere = [rank for rank in range(size) if rank not in here | self.silent.keys()]
        links = [self._link(one, peer) for one in self.now for peer in one.peers]
        return View(job_name(self.now[0].job), size, self.seconds, headline, slow, rows, links, lag, elsewhere, notes)

    def _row(self, one: Process, group: Group) -> Row:
        old, elapsed = self._old(one, group)
        total = _total(group.calls.values())
        was = _total(old.calls.values()) if old else Calls()
        waits = self._waits_for(one, group)
        return Row(
            one.rank, one.host or socket.gethostname(), one.pid, group.name, group.id, group.rank, group.size, (total.over - was.over) / elapsed,
            (total.bytes - was.bytes) / elapsed, self._spent(one, group, False) / elapsed, self._waited(one, group) / elapsed,
            group.running, f"{group.latest} #{group.number}" if group.latest else "", _running_s(one, group), waits,
            total.failed + group.refused, {name: asdict(calls) for name, calls in group.calls.items()})  # fmt: skip

    def _link(self, one: Process, peer: Peer) -> Link:
        process = self.processes.get(one.key)
        old = next((other for other in process.peers if other.rank == peer.rank), None) if process else None
        was = old or Peer(peer.rank, "", 0, 0, 0, 0, 0)
        elapsed = max(1e-9, (one.read_ns - process.read_ns) / 1e9) if process else self.seconds
        return Link(
            one.rank, peer.rank, peer.transport, (peer.sent - was.sent + peer.received - was.received) / elapsed,
            (peer.sent_bytes - was.sent_bytes) / elapsed, (peer.received_bytes - was.received_bytes) / elapsed,
            peer.reconnected)  # fmt: skip

    def _old(self, one: Process, group: Group) -> tuple[Group | None, float]:
        """The group as it was, and the seconds since."""
        process, old = self.before.get((one.key, group.serial), (None, None))
        return old, max(1e-9, (one.read_ns - process.read_ns) / 1e9) if process else self.seconds

    def _spent(self, one: Process, group: Group, collectives: bool) -> float:
        """Seconds in calls between the two looks; a call that runs counts to now."""
        old, elapsed = self._old(one, group)
        process = self.before.get((one.key, group.serial), (None, None))[0]

        def until(calls: Group, read_ns: int) -> float:
            chosen = (c for name, c in calls.calls.items() if not (collectives and name in _MESSAGES))
            return _total(chosen).nanoseconds / 1e9 + (max(0, read_ns - calls.progress_ns) / 1e9 if calls.running else 0.0)

        spent = until(group, one.read_ns) - (until(old, process.read_ns) if old and process else 0.0)
        return min(max(0.0, spent), elapsed * max(1, group.running, 8))

    def _waited(self, one: Process, group: Group) -> float:
        """Seconds by which the rank was in collectives longer than the member that was there the least."""
        members = self.members[group.id]
        if len(members) < 2:
            return 0.0
        return max(0.0, self._spent(one, group, True) - min(self._spent(*member, True) for member in members))

    def _lags(self) -> list[tuple[int, float]]:
        """By global rank the part of the time that the other members waited for it on average, in the group where that is the most."""
        lags: dict[int, float] = {}
        for members in self.members.values():
            if len(members) < 2:
                continue
            spent = [(one.rank, self._spent(one, group, True) / self._old(one, group)[1]) for one, group in members]
            for rank, own in spent:
                others = [min(1.0, other) for of, other in spent if of != rank]
                lags[rank] = max(lags.get(rank, 0.0), sum(others) / len(others) - min(1.0, own))
        return sorted(((rank, max(0.0, lag)) for rank, lag in lags.items()), key=lambda one: (-one[1], one[0]))

    def _waits_for(self, one: Process, group: Group) -> list[int]:
        """The ranks that have not made the running call."""
        if not group.running:
            return []
        others = [(process.rank, other) for process, other in self.members[group.id] if process.rank != one.rank]
        if group.latest in _MESSAGES:
            return [rank for rank, other in others if other.rank == group.peer]
        oldest = max(1, group.collectives - group.running + 1)
        late = sorted(rank for rank, other in others if other.collectives < oldest)
        silent = {process.rank for process, _ in self.members[group.id]}
        if len(silent) < len(self.members[group.id]):
            return late
        # A rank that has never called the group has no counters of it; it is here, but not in the group's list.
        missing = [process.rank for process in self.now if group.size == process.size and process.rank not in silent]
        return sorted([*late, *missing])

    def _headline(self, rows: list[Row], lag: list[tuple[int, float]]) -> tuple[str, list[int]]:
        stopped = [one for one in self.now if self.states[one.key] != "runs"]
        if stopped:
            first = stopped[0]
            return f"rank {first.rank} (pid {first.pid}) {self.states[first.key]}{self._who_waits(rows, first.rank)}", [one.rank for one in stopped]
        if self.silent:
            return self.silent[min(self.silent)], sorted(self.silent)
        blamed: dict[int, list[Row]] = {}
        waiting = {row.rank for row in rows if row.waits_for}
        for row in rows:
            # For a whole interval, so that a call that merely is under way blames nobody.
            if row.running_s >= self.seconds:
                for rank in row.waits_for:
                    blamed.setdefault(rank, []).append(row)
        guilty = sorted((rank for rank in blamed if rank not in waiting), key=lambda rank: -len(blamed[rank])) or sorted(blamed)
        if guilty:
            row = max(blamed[guilty[0]], key=lambda one: one.running_s)
            who = [one.rank for one in blamed[guilty[0]]]
            verbs = ("keeps" if len(guilty) == 1 else "keep", "is" if len(set(who)) == 1 else "are")
            return (f"{_ranks(guilty)} {verbs[0]} {_ranks(who)} waiting, which {verbs[1]} in {row.latest} of group {row.group} "
                    f"for {row.running_s:.1f} s"), guilty  # fmt: skip
        if lag and lag[0][1] >= _LAGS:
            rank, part = lag[0]
            return f"rank {rank} comes last: the others wait for it {part:.0%} of the time{self._who_takes_its_processor(rank)}", [rank]
        return "no rank keeps the others waiting", []

    def _who_takes_its_processor(self, rank: int) -> str:
        one = next(process for process in self.now if process.rank == rank)
        old = self.processes.get(one.key)
        delayed = min(1.0, (one.delayed_ns - old.delayed_ns) / max(1, one.read_ns - old.read_ns)) if old else 0.0
        if delayed < _DELAYED:
            return ""
        text = f"; it waits for a processor {delayed:.0%} of the time"
        other = _processes.busiest(_LOOK, {process.pid for process in self.now if not process.host})
        if other is None or other[2] < _HOGS:
            return text
        return f"{text}, and process {other[0]} ({other[1]}) takes {other[2]:.1f} of {os.cpu_count()}"

    @staticmethod
    def _who_waits(rows: list[Row], rank: int) -> str:
        who = [row.rank for row in rows if rank in row.waits_for]
        return f"; {_ranks(who)} {'waits' if len(set(who)) == 1 else 'wait'} for it" if who else ""


def _ranks(ranks: list[int]) -> str:
    """"rank 3", "ranks 0 and 2", "ranks 0, 1, 2 and 5 more"."""
    all = [str(rank) for rank in sorted(set(ranks))]
    if len(all) == 1:
        return f"rank {all[0]}"
    if len(all) > 4:
        return f"ranks {', '.join(all[:3])} and {len(all) - 3} more"
    return f"ranks {', '.join(all[:-1])} and {all[-1]}"


def _total(calls) -> Calls:
    all = list(calls)
    return Calls(*(sum(getattr(one, name) for one in all) for name in ("over", "failed", "bytes", "nanoseconds")))


def _running_s(one: Process, group: Group) -> float:
    return max(0, one.read_ns - group.progress_ns) / 1e9 if group.running else 0.0

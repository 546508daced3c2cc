"""The verdict: which rank keeps the others waiting, as sentences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from hccl_like._dumps import Dump, Record
from hccl_like.hang import _waits
from hccl_like.hang._waits import Job, Wait

NO_HANG, HANG, CANNOT_TELL = 0, 1, 2
_MOST_WAITERS = 16


@dataclass(frozen=True)
class Process:
    """A rank's process on this host."""

    host: str
    pid: int
    state: str  # "runs", "is stopped (by a signal or a debugger)", "has ended"
    where: str = ""  # "in __next__, dataloader.py:708, called at digits/train.py:88"
    stack: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        return self.state == "runs"


@dataclass
class Verdict:
    code: int
    kind: str  # missing, no dump, stopped, gone, mismatch, circle, all inside, no hang, cannot tell
    text: str
    guilty: list[int] = field(default_factory=list)
    call: Record | None = None
    details: list[str] = field(default_factory=list)


class Judge:
    def __init__(self, job: Job, processes: dict[int, Process], seconds: float, now: int | None = None):
        """`seconds`: a call that runs for less is no hang. `now`: the time if the dumps are of this moment."""
        self.job, self.processes, self.now = job, processes, now
        latest = now or job.newest
        self.waits = [wait for wait in job.waits() if wait.record.has_failed or latest - wait.record.created >= 1e9 * seconds]
        self.ill = [rank for rank, process in sorted(processes.items()) if not process.is_well]

    def verdict(self) -> Verdict:
        if not any(dump.records for dump in self.job.dumps.values()):
            if self.ill:
                return self._none()
            return Verdict(CANNOT_TELL, "cannot tell", "cannot tell: there is no record of any call")
        found = self._ill() or self._gone() or self._mismatch() or self._missing() or self._circle() or self._all_inside() or self._none()
        if found.call is not None:
            found.details += self._waiting(found)
            found.details.append(self._last_common(found.call))
        return found

    def rows(self) -> list[tuple[str, ...]]:
        """The ranks: rank, process, call, state, since, at."""
        return [self._row(rank) for rank in self.job.ranks()]

    # --- the kinds, the surest first ---

    def _ill(self) -> Verdict | None:
        awaited = [wait for wait in self.waits if self._awaits(wait, self.ill)]
        if not awaited:
            return None
        guilty = [rank for rank in self.ill if self._awaits(awaited[0], [rank])]
        call = awaited[0].record
        there = [rank for rank in guilty if rank in self.job.at(call.group, call.number)]
        how = "inside" if there else "before"
        return Verdict(HANG, "stopped", f"{self._illness(guilty)}, {how} {self.title(call)}", guilty, call)

    def _illness(self, ranks: Sequence[int]) -> str:
        return "; ".join(f"{self.who([rank])} {self.processes[rank].state}" for rank in ranks)

    def _awaits(self, wait: Wait, ranks: Sequence[int]) -> bool:
        inside = self.job.groups[wait.record.group].ranks if not wait.record.is_message else ()
        return any(rank in wait.absent or rank in wait.silent or rank in inside for rank in ranks)

    def _gone(self) -> Verdict | None:
        """A rank that others have seen go, and that has not written anything since."""
        witnesses = [dump for dump in self.job.dumps.values() if dump.lost is not None]
        lost = sorted({dump.lost for dump in witnesses if dump.lost is not None and not self._writes_after(dump.lost, dump)})
        if not lost:
            return None
        witness = next(dump for dump in witnesses if dump.lost == lost[0])
        call = next((wait.record for wait in self.waits if wait.rank == witness.rank), None)
        return Verdict(HANG, "gone", f"{self.who(lost)} {'is' if len(lost) == 1 else 'are'} gone: rank {witness.rank} says: {witness.failure}", lost, call)

    def _writes_after(self, rank: int, witness: Dump) -> bool:
        return rank in self.job.dumps and self.job.dumps[rank].written > witness.written

    def _mismatch(self) -> Verdict | None:
        for wait in self.waits:
            call = wait.record
            kinds = _waits.varieties(self.job.at(call.group, call.number)) if not call.is_message else []
            if len(kinds) < 2:
                continue
            odd = [] if len(kinds[0][0]) == len(kinds[1][0]) else sorted(rank for ranks, _ in kinds[1:] for rank in ranks)
            named = self.who(odd) if odd else self.who(sorted(rank for ranks, _ in kinds for rank in ranks))
            how = "disagrees with the others" if len(odd) == 1 else "disagree with the others" if odd else "disagree"
            made = "; ".join(f"{_ranks(ranks)} made {_described(records)}" for ranks, records in kinds)
            text = f"{named} {how} about call #{call.number} of group {self.job.groups[call.group]}: {made}"
            return Verdict(HANG, "mismatch", text, odd, call)
        return None

    def _missing(self) -> Verdict | None:
        all_guilty = _waits.roots(self.waits)
        if not all_guilty:
            return None
        first = next(wait for wait in self.waits if all_guilty[0] in wait.absent | wait.silent)
        here = [rank for rank in all_guilty if rank in first.absent]
        call = first.record
        if here:
            text = f"{self.who(here)} never {self._what_is_awaited(call)}; {self._last_call(here[0], call)}"
            verdict = Verdict(HANG, "missing", text, here, call)
        else:
            here = sorted(first.silent)
            text = f"{self.who(here)} left no dump since {self.title(call)} was entered by {_ranks(self._inside(call))}: dead, stopped, cut off or busy elsewhere"
            verdict = Verdict(HANG, "no dump", text, here, call)
        places = [(rank, process.where) for rank in here if (process := self.processes.get(rank)) and process.where]
        if len(here) == 1:
            verdict.text += "".join(f"; it is {where}" for _, where in places)
        else:
            verdict.details += [f"rank {rank} is {where}" for rank, where in places]
        if others := [rank for rank in all_guilty if rank not in here]:
            verdict.details.append(f"others wait for {self.who(others)}, too")
        return verdict

    def _what_is_awaited(self, call: Record) -> str:
        if not call.is_message:
            return f"entered {self.title(call)}"
        verb, noun = ("received", "sends") if call.name == "send" else ("sent", "waits for")
        return f"{verb} what rank {call.rank} {noun} in {self.title(call)}"

    def _circle(self) -> Verdict | None:
        waits = _waits.circle(self.waits)
        if not waits:
            return None
        steps = [f"rank {wait.rank} is in {self.title(wait.record)} and waits for rank {after.rank}"
                 for wait, after in zip(waits, [*waits[1:], waits[0]])]  # fmt: skip
        ranks = sorted({wait.rank for wait in waits})
        return Verdict(HANG, "circle", f"{self.who(ranks)} wait for each other: {'; '.join(steps)}", ranks, waits[0].record)

    def _all_inside(self) -> Verdict | None:
        if not self.waits:
            return None
        call = self.waits[0].record
        if call.is_message:
            text = f"cannot tell: rank {call.rank} waits in {self.title(call)}, and no rank is known to be missing; see the ranks' errors"
            return Verdict(CANNOT_TELL, "all inside", text, [], call)
        ended = "has failed" if call.has_failed else "is not over"
        text = f"cannot tell: every rank entered {self.title(call)} with the same arguments, and it {ended}; see the ranks' errors"
        return Verdict(CANNOT_TELL, "all inside", text, [], call)

    def _none(self) -> Verdict:
        if self.ill:
            return Verdict(HANG, "stopped", f"{self._illness(self.ill)}; no rank waits in a call as far as is known", self.ill)
        without = [rank for rank in self.job.ranks() if rank not in self.job.dumps]
        if without:
            return Verdict(CANNOT_TELL, "cannot tell", f"cannot tell: no rank waits, but there is no dump of {self.who(without)}")
        return Verdict(NO_HANG, "no hang", "no hang: no rank waits in a call")

    # --- the lines below it ---

    def _inside(self, call: Record) -> list[int]:
        if call.is_message:
            return [call.rank]
        return sorted(self.job.at(call.group, call.number))

    def _waiting(self, found: Verdict) -> list[str]:
        """The ranks in the call, then those that wait for these, each once."""
        lines = []
        for wait in self.waits:
            missing = sorted(wait.absent | wait.silent)
            whom = f"waits for {_ranks(missing)}" if missing else "is in it with all others" if not wait.record.is_message else "waits"
            at = self._at(wait.rank, wait.record)
            lines.append(f"rank {wait.rank} {whom} in {self.title(wait.record)}{self._since(wait.record)}{at}")
        left = len(lines) - _MOST_WAITERS
        return lines[:_MOST_WAITERS] + ([f"and {left} more"] if left > 0 else [])

    def _last_common(self, call: Record) -> str:
        common = self.job.last_common(call.group)
        group = self.job.groups[call.group]
        if common is None:
            return f"no call that all ranks of group {group} ended is in these dumps"
        return f"the last call that all ranks of group {group} ended is {common.title}"

    def _last_call(self, rank: int, call: Record) -> str:
        last = self.job.last(call.group, rank) if not call.is_message else None
        if last is not None:
            return f"its last call there is {last.title}{' at ' + last.line if last.line else ''}"
        records = self.job.dumps[rank].records
        if not records:
            return "it made no call at all"
        return f"its last call is {self.title(records[-1])}{' at ' + records[-1].line if records[-1].line else ''}"

    def _since(self, record: Record) -> str:
        end = self.now or self.job.dumps[record.rank].written
        return f", for {(end - record.created) / 1e9:.1f} s" if end > record.created else ""

    def _at(self, rank: int, record: Record) -> str:
        if record.line:
            return f", at {record.line}"
        process = self.processes.get(rank)
        return f", {process.where}" if process and process.where else ""

    def _row(self, rank: int) -> tuple[str, ...]:
        process = self.processes.get(rank)
        named = f"{process.host}:{process.pid}" if process else "-"
        where = process.where if process else ""
        if rank not in self.job.dumps:
            return str(rank), named, "no dump", process.state if process else "-", "-", where or "-"
        wait = next((wait for wait in self.waits if wait.rank == rank), None)
        records = self.job.dumps[rank].records
        if wait is None and not records:
            return str(rank), named, "no call", "-", "-", where or "-"
        record = wait.record if wait else records[-1]
        state = "failed" if record.has_failed else "over" if record.is_over else record.state
        return str(rank), named, self.title(record), state, self._since(record).removeprefix(", for ") or "-", record.line or where or "-"

    def title(self, record: Record) -> str:
        group = self.job.groups[record.group]
        peer = ""
        if record.is_message:
            other = "any rank" if record.peer is None else f"rank {group.ranks[record.peer]}"
            peer = (" to " if record.name == "send" else " from ") + other
        return f"{record.title}{peer} of group {group}"

    def who(self, ranks: Sequence[int]) -> str:
        """"rank 3 (host b, pid 712)", "ranks 1, 2 and 5"."""
        if len(ranks) == 1 and (process := self.processes.get(ranks[0])):
            return f"rank {ranks[0]} (host {process.host}, pid {process.pid})"
        return _ranks(ranks)

    def to_json(self, verdict: Verdict) -> dict:
        return {
            **asdict(verdict),
            "waits": [{"rank": wait.rank, "call": asdict(wait.record), "missing": sorted(wait.absent), "no_dump": sorted(wait.silent)}
                      for wait in self.waits],
            "processes": {rank: asdict(process) for rank, process in self.processes.items()},
            "ranks": [dict(zip(COLUMNS, row)) for row in self.rows()],
        }  # fmt: skip


COLUMNS = ("rank", "process", "call", "state", "since", "at")


def _ranks(ranks: Sequence[int]) -> str:
    """"rank 3", "ranks 0, 1 and 2", "ranks 0 to 7"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 3 and all(after == before + 1 for before, after in itertools.pairwise(ranks)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _described(records: list[Record]) -> str:
    """"all_reduce of Float [3, 4]"."""
    kinds = []
    for record in records:
        tensors = record.inputs or record.outputs
        kinds.append(record.name + (f" of {', '.join(tensors)}" if tensors else ""))
    return " and ".join(kinds)

"""The events of a trace in Chrome's format: a process for each rank, a thread for each group, flows between ranks."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hccl_like._dumps import Dump, Record
from hccl_like.trace._clocks import Clock
from hccl_like.trace._matching import Call, arrival


@dataclass
class Waiting:
    """ns that a rank waited for others, and that others waited for it because it came last."""

    waited: int = 0
    kept: int = 0


class Tracks:
    """`origin`: what is time 0 of the trace, ns on the aligned clock. `flows` gives each flow its number."""

    def __init__(self, dumps: list[Dump], calls: list[Call], clocks: dict[int, Clock], origin: int, flows: Iterator[int]):
        self._dumps, self._calls, self._clocks, self._origin, self._flow_numbers = dumps, calls, clocks, origin, flows
        self._end = max((self._at(dump.rank, dump.newest) for dump in dumps if dump.records), default=0)
        self._places: dict[int, tuple[int, int]] = {}  # of a record by its id(): process and thread
        self.waiting = {dump.rank: Waiting() for dump in dumps}

    def events(self) -> Iterator[dict]:
        for dump in self._dumps:
            yield _meta(dump.rank, 0, "process_name", {"name": f"rank {dump.rank}"})
            yield _meta(dump.rank, 0, "process_sort_index", {"sort_index": dump.rank})
            yield from self._slices(dump)
        for call in self._calls:
            yield from self._between_ranks(call)

    def _slices(self, dump: Dump) -> Iterator[dict]:
        rows: dict[tuple[str, bool], list[Record]] = defaultdict(list)
        for record in dump.records:
            rows[record.group, record.is_message].append(record)
        threads = itertools.count(1)
        for (name, is_message), records in rows.items():
            title = f"group {dump.groups[name]}" + (", messages" if is_message else "")
            for number, lane in enumerate(self._lanes(records)):
                thread = next(threads)
                yield _meta(dump.rank, thread, "thread_name", {"name": title if number == 0 else f"{title} ({number + 1})"})
                yield _meta(dump.rank, thread, "thread_sort_index", {"sort_index": thread})
                for record in lane:
                    self._places[id(record)] = (dump.rank, thread)
                    yield self._slice(record)

    def _lanes(self, records: list[Record]) -> list[list[Record]]:
        """Calls under way together are on threads of their own: slices of one thread must not overlap."""
        lanes: list[list[Record]] = []
        for record in sorted(records, key=lambda record: record.created):
            free = next((lane for lane in lanes if self._over(lane[-1]) <= self._at(record.rank, record.created)), None)
            if free is None:
                lanes.append([record])
            else:
                free.append(record)
        return lanes

    def _slice(self, record: Record) -> dict:
        how = "" if record.is_over else " (failed)" if record.has_failed else " (not over)"
        told: dict = {"number": record.number, "state": record.state, "inputs": list(record.inputs), "outputs": list(record.outputs)}
        if record.is_over and not record.is_final:
            told["end"] = "when the dump was made, at the latest"
        if record.line:
            told["line"] = record.line
        return self._span(record, record.name + how, self._at(record.rank, record.created), self._over(record), told)

    def _between_ranks(self, call: Call) -> Iterator[dict]:
        """What each rank waited for the last, and an arrow from there."""
        if call.absent and call.all_wait:
            whom = "rank " + ", ".join(map(str, call.absent)) + ", which never came"
            for rank, record in call.records.items():
                yield self._span(record, f"waits for {whom}", self._came(record), self._over(record), {})
            return
        if len(call.records) < 2 or not call.is_complete:
            return
        if not call.awaited:  # a root, say, which a dump does not name: the arrows come from the first
            first = min(call.records.values(), key=self._came)
            yield from self._flows_from(first, call)
            return
        last = max((call.records[rank] for rank in call.awaited), key=self._came)
        if not all(record.is_final or not record.is_over for record in call.records.values()):
            yield from self._flows_from(last, call)  # over, but nobody knows since when
            return
        for rank, record in call.records.items():
            waited = min(self._came(last), self._over(record)) - self._came(record)
            if record is not last and waited > 0:
                self.waiting[rank].waited += waited
                self.waiting[last.rank].kept += waited
                yield self._span(record, f"waits for rank {last.rank}", self._came(record), self._came(record) + waited, {})
        yield from self._flows_from(last, call)

    def _flows_from(self, source: Record, call: Call) -> Iterator[dict]:
        begin = self._came(source)
        for rank, record in call.records.items():
            if record is not source and self._over(record) > begin:
                flow = next(self._flow_numbers)
                yield self._flow(source, "s", flow, begin)
                yield self._flow(record, "f", flow, max(begin, self._at(rank, record.created)))

    def _at(self, rank: int, time: int) -> int:
        return time + self._clocks[rank].offset - self._origin

    def _came(self, record: Record) -> int:
        return self._at(record.rank, arrival(record))

    def _over(self, record: Record) -> int:
        end = self._at(record.rank, record.completed) if record.completed else self._end
        return max(end, self._at(record.rank, record.created))

    def _span(self, record: Record, name: str, begin: int, end: int, told: dict) -> dict:
        process, thread = self._places[id(record)]
        return {"ph": "X", "cat": "hccl-like", "name": name, "pid": process, "tid": thread, "ts": begin / 1000,
                "dur": max(0, end - begin) / 1000, "args": told}

    def _flow(self, record: Record, phase: str, number: int, time: int) -> dict:
        process, thread = self._places[id(record)]
        return {"ph": phase, "bp": "e", "cat": "hccl-like", "name": "same call", "id": number, "pid": process, "tid": thread,
                "ts": time / 1000}


def _meta(process: int, thread: int, name: str, told: dict) -> dict:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": told}

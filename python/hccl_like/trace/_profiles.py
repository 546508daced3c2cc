"""Traces of torch.profiler, moved to the clock of the merged trace."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hccl_like._dumps import Unreadable

_FIRST_PROCESS = 1_000_000  # ranks have their own number; a profile's processes come above
_LINKED = "stfbnePNOD"  # phases that have an id


@dataclass
class Profile:
    rank: int
    path: str
    base: int  # ns since the epoch that its times count from
    events: list[dict]

    def begin(self) -> int | None:
        """The time of its first event, ns since the epoch."""
        times = [event["ts"] for event in self.events if "ts" in event and event["ph"] != "M"]
        return self.base + round(1000 * min(times)) if times else None

    def moved(self, shift: int, processes: Iterator[int], links: Iterator[int]) -> Iterator[dict]:
        """Its events `shift` ns later, with process numbers and links that no other rank has."""
        named: dict[object, int] = {}
        linked: dict[tuple, int] = {}
        for event in self.events:
            process = event.get("pid")
            if process not in named:
                named[process] = next(processes)
            moved = {**event, "pid": named[process]}
            if event["ph"] == "M" and event["name"] == "process_name":
                moved["args"] = {"name": f"rank {self.rank}: {event['args'].get('name', '')}"}
            if event["ph"] == "M" and event["name"] == "process_sort_index":
                moved["args"] = {"sort_index": _FIRST_PROCESS + named[process]}
            if "ts" in event:
                moved["ts"] = (round(1000 * event["ts"]) + self.base + shift) / 1000
            if event["ph"] in _LINKED and "id" in event:
                key = (event.get("cat"), event["id"])
                if key not in linked:
                    linked[key] = next(links)
                moved["id"] = linked[key]
            yield moved


def processes() -> Iterator[int]:
    number = _FIRST_PROCESS
    while True:
        yield number
        number += 1


def read(path: str) -> Profile:
    try:
        content = Path(path).read_bytes()
        document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        events = [event for event in document["traceEvents"] if "ph" in event]
        rank = document.get("distributedInfo", {}).get("rank")
        return Profile(_rank_in(path) if rank is None else int(rank), path, int(document.get("baseTimeNanoseconds", 0)), events)
    except Unreadable:
        raise
    except Exception as error:  # whatever a stranger's file does to the parsers
        raise Unreadable(f"{path}: not a trace of torch.profiler: {type(error).__name__}: {error}") from error


def _rank_in(path: str) -> int:
    found = re.search(r"(\d+)(\.[a-z.]+)?$", Path(path).name)
    if not found:
        raise Unreadable(f"{path}: it does not tell its rank; let its name end in it, as in profile_0.json")
    return int(found[1])

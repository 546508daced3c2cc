"""Reads flight-recorder dumps, of hccl-like or of any other backend of torch, and what one record of them says.

A dump of hccl-like holds neither the host nor the process id of its rank. The rank is the number at the end of the file's name,
as in torch's own analyser.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_FIRST_MESSAGE = 1_000_000_000  # hccl-like counts messages from here (docs/diagnosis.md)
_MESSAGE = re.compile(r"(send|recv) (\d+)(?:->|<-)(-?\d+)$")
_RANK = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle))?$")
_NOT_THE_PROGRAM = re.compile(r"^<|/(torch|hccl_like)/|/lib/python3\.\d+/(?!(?:site|dist)-packages/)")


class Unreadable(ValueError):
    """A file that is no dump; the message says which and why."""


@dataclass(frozen=True)
class Group:
    name: str
    description: str
    ranks: tuple[int, ...]  # global

    @property
    def key(self) -> str:
        """The same on all ranks of the group, and of no other: groups of different ranks may have one name."""
        return f"{self.name} {list(self.ranks)}"

    def __str__(self) -> str:
        return self.description if self.description not in ("", "undefined") else self.name


@dataclass(frozen=True)
class Record:
    """A call of one rank. Times are nanoseconds since the epoch on the clock of the rank's host."""

    rank: int
    group: str  # its key
    number: int  # of collectives and of messages apart
    name: str  # "all_reduce", "send"
    peer: int | None  # the other end of a message, by its number in the group; None: any
    is_message: bool
    state: str  # "scheduled", "started", "completed"
    is_final: bool  # retired: with another state than "completed" the call has failed
    created: int
    started: int | None
    completed: int | None
    inputs: tuple[str, ...]  # "Float [3, 4]"
    outputs: tuple[str, ...]
    line: str  # "digits/train.py:88", or empty

    @property
    def is_over(self) -> bool:
        return self.state == "completed"

    @property
    def has_failed(self) -> bool:
        return self.is_final and not self.is_over

    @property
    def title(self) -> str:
        return f"{self.name} #{self.number}"


@dataclass
class Dump:
    rank: int
    path: str
    written: int  # ns since the epoch
    groups: dict[str, Group]  # by key
    records: list[Record]  # oldest first
    is_whole: bool  # the ring has lost no call
    failure: str = ""  # the rank's first failure, if the dump tells it
    lost: int | None = None  # the rank that the failure says is gone
    newest: int = field(init=False)  # the latest time in it

    def __post_init__(self) -> None:
        self.newest = max((max(r.created, r.started or 0, r.completed or 0) for r in self.records), default=0)


class _Plain(pickle.Unpickler):
    """Dumps are of dicts, lists, strings and numbers. A pickle that names a function would run it."""

    def find_class(self, module: str, name: str):
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no dump does")


def files(paths: Iterable[str]) -> list[Path]:
    """The dumps that are meant: files as they are, and of a folder those whose names end in a number."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(entry for entry in path.iterdir() if entry.is_file() and _RANK.search(entry.name)) if path.is_dir() else [path]
        if not inside:
            raise Unreadable(f"{path}: no file in this folder has a name that ends in a rank, as in trace_0")
        found += inside
    return found


def read_all(paths: Iterable[str]) -> list[Dump]:
    """The dumps by rank."""
    dumps: dict[int, Dump] = {}
    for path in files(paths):
        dump = read(path)
        if dump.rank in dumps:
            raise Unreadable(f"{dumps[dump.rank].path} and {path}: both are of rank {dump.rank}; name the files of one job")
        dumps[dump.rank] = dump
    return [dumps[rank] for rank in sorted(dumps)]


def read(path: Path) -> Dump:
    rank = _RANK.search(path.name)
    if rank is None:
        raise Unreadable(f"{path}: the name of a dump ends in its rank, as in trace_0")
    try:
        return parse(path.read_bytes(), int(rank[1]), str(path), path.stat().st_mtime_ns)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def parse(content: bytes, rank: int, path: str, written: int) -> Dump:
    """From the pickle or the JSON that a process gives."""
    try:
        raw = json.loads(content) if content.lstrip()[:1] == b"{" else _Plain(io.BytesIO(content)).load()
        groups = {name: Group(name, config["desc"], tuple(json.loads(config["ranks"]))) for name, config in raw["pg_config"].items()}
        entries = raw.get("entries", [])
        records = [_record(entry, rank, groups[entry["process_group"][0]].key) for entry in entries if not entry["profiling_name"].endswith(":coalesced")]
        first = min((entry["record_id"] for entry in entries), default=0)
        told = raw.get("nccl_comm_state", {}).get("hccl-like", {})
        return Dump(rank, path, written, {group.key: group for group in groups.values()}, records, is_whole=first <= 1,
                    failure=str(told.get("failure", "")), lost=int(told["lost"]) if "lost" in told else None)  # fmt: skip
    except Exception as error:  # whatever a stranger's file does to the parsers
        raise Unreadable(f"{path}: not a dump of the flight recorder: {type(error).__name__}: {error}") from error


def _record(entry: dict, rank: int, group: str) -> Record:
    name, peer = entry["profiling_name"].partition(":")[2], None
    if message := _MESSAGE.match(name):
        name, peer = message[1], int(message[3]) if int(message[3]) >= 0 else None
    number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
    return Record(
        rank=rank, group=group, name=name, peer=peer, is_message=entry["is_p2p"],
        number=number - _FIRST_MESSAGE if entry["is_p2p"] and number > _FIRST_MESSAGE else number,
        state=entry["state"], is_final=entry["retired"], created=entry["time_created_ns"],
        started=entry["time_discovered_started_ns"] or None, completed=entry["time_discovered_completed_ns"] or None,
        inputs=_tensors(entry["input_dtypes"], entry["input_sizes"]),
        outputs=_tensors(entry["output_dtypes"], entry["output_sizes"]),
        line=line_of([(frame["filename"], frame["line"]) for frame in entry.get("frames", [])]),
    )  # fmt: skip


def _tensors(types: Sequence[str], sizes: Sequence[Sequence[int]]) -> tuple[str, ...]:
    return tuple(f"{kind} {list(size)}" for kind, size in zip(types, sizes))


def line_of(frames: Iterable[tuple[str, int]]) -> str:
    """The innermost line that is the program's own, of frames from the innermost out: "digits/train.py:88"."""
    for file, line in frames:
        if not _NOT_THE_PROGRAM.search(file):
            return f"{'/'.join(Path(file).parts[-2:])}:{line}"
    return ""

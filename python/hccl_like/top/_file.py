"""Reads the counter files of running processes: core/counters/counter_layout.h has the same layout.

A counter file is an anonymous memory file that its process keeps open, so it is found in /proc/PID/fd and ends with its process. Its bytes
are those of another process and are checked like those of a stranger.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from hccl_like.hang import _processes

_NAME = "/memfd:hccl-like-counters"
_MAGIC = b"HCCLcnt\0"
_VERSION = 3
_MOST_BYTES = 1 << 20
_HEADER = struct.Struct("=8s IIIIII I ii II 4x Q Q Q")
_GROUP = struct.Struct("=Q Q iii 4x 64s Q Q q QQ Q Q")
_CALLS = struct.Struct("=4Q")
_PEER = struct.Struct("=Q 8s 4Q II Q")
_KIND_NAME = 24


class Refused(ValueError):
    """A file that is no counter file; the message says which and why."""


@dataclass(frozen=True)
class Calls:
    """Calls of one collective since the group was made."""

    over: int = 0
    failed: int = 0
    bytes: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True)
class Group:
    serial: int  # of this group in its process
    id: int  # the same on all ranks
    name: str
    rank: int
    size: int
    global_rank: int
    latest: str  # the collective of the latest call, or empty
    number: int  # of the latest call
    collectives: int  # number of the latest collective made
    peer: int  # of the latest call, if it is a message, as rank in the group; else -1
    running: int  # calls that have not ended
    progress_ns: int  # CLOCK_MONOTONIC: when the first of the running calls began, or one ended
    refused: int  # calls after a failure of the group
    calls: dict[str, Calls]


@dataclass(frozen=True)
class Peer:
    """Messages to and from another rank, over their connection."""

    rank: int  # in the largest group
    transport: str
    sent: int
    sent_bytes: int
    received: int
    received_bytes: int
    reconnected: int  # connections that took the place of broken ones
    rails_down: int = 0  # now: broken, or moved to another network
    waited_ns: int = 0  # in which calls could not go on, because they waited for it


@dataclass(frozen=True)
class Process:
    """One rank's counters at one moment."""

    pid: int
    rank: int  # in the largest group; -1 before there is a group
    size: int
    job: int  # id of the largest group; 0 before there is one
    started_ns: int  # CLOCK_REALTIME
    uncounted: int  # groups and connections that are not in the file
    read_ns: int  # CLOCK_MONOTONIC
    groups: list[Group] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)  # those that are connected
    delayed_ns: int = 0  # that its main thread has waited for a processor; of ranks of this host
    host: str = ""  # its name, of a rank of another host

    @property
    def key(self) -> tuple[str, int]:
        return self.host, self.pid


def processes() -> tuple[list[Process], list[str]]:
    """The ranks of this host that this user may see, and a sentence for each counter file that was refused."""
    found, problems = [], []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (one := of_process(int(entry.name))) is not None:
                found.append(one)
        except Refused as problem:
            problems.append(str(problem))
    return sorted(found, key=lambda one: (one.job, one.rank, one.pid)), problems


def of_process(pid: int) -> Process | None:
    """The counters of one process; None if it keeps none, has ended or is another user's. Raises Refused."""
    for path in files(pid):
        try:
            with open(path, "rb", buffering=0) as file:
                status, content = os.fstat(file.fileno()), file.read(_MOST_BYTES)
            owner = os.stat(f"/proc/{pid}").st_uid
        except OSError:  # it has just ended
            continue
        place = f"the counter file of process {pid}"
        if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != owner:
            raise Refused(f"{place} is refused: others than the owner of the process may write it")
        one = parse(content, place, pid)
        if one is not None:
            return replace(one, delayed_ns=_processes.delayed_ns(pid))
    return None


def files(pid: int, name: str = _NAME) -> Iterator[str]:
    """Paths of the memory files of this name that the process has open."""
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return
    for descriptor in descriptors:
        try:
            if os.readlink(f"{folder}/{descriptor}").startswith(name):
                yield f"{folder}/{descriptor}"
        except OSError:
            continue


def parse(content: bytes, place: str, pid: int | None = None) -> Process | None:
    """The counters in a file that process `pid` holds, or in an answer of another host; None if they are those of its parent. Raises Refused."""
    if len(content) < _HEADER.size:
        raise Refused(f"{place} is refused: it has {len(content)} bytes, less than its header")
    (magic, version, header_bytes, group_bytes, count, kinds, name_bytes, own_pid, rank, size, peers, peer_bytes, started, job,
     uncounted) = _HEADER.unpack_from(content)  # fmt: skip
    if magic != _MAGIC:
        raise Refused(f"{place} is refused: it does not begin as one")
    if version != _VERSION:
        raise Refused(f"{place} has version {version}, and this hccl-like reads version {_VERSION}: use the hccl-like of the job")
    names_end = _HEADER.size + kinds * _KIND_NAME
    group_needs = _GROUP.size + kinds * _CALLS.size
    peers_at = header_bytes + count * group_bytes
    if (kinds > 64 or name_bytes != 64 or header_bytes < names_end or group_bytes < group_needs or peer_bytes < _PEER.size
            or len(content) < peers_at + peers * peer_bytes):  # fmt: skip
        raise Refused(f"{place} is refused: its {len(content)} bytes are cut off, or its sizes are impossible")
    if pid is not None and own_pid != _pid_inside(pid):
        return None  # inherited over fork()
    names = [text(content[at : at + _KIND_NAME]) for at in range(_HEADER.size, names_end, _KIND_NAME)]
    read_ns = time.monotonic_ns()
    groups = [_group(content, header_bytes + slot * group_bytes, names) for slot in range(count)]
    connections = [_peer(content, peers_at + slot * peer_bytes) for slot in range(peers)]
    return Process(own_pid if pid is None else pid, rank, size, job, started, uncounted, read_ns, [group for group in groups if group is not None],
                   [peer for peer in connections if peer is not None])  # fmt: skip


def _group(content: bytes, at: int, names: list[str]) -> Group | None:
    (serial, id, rank, size, global_rank, name, latest, collectives, peer, launched, finished, progress,
     refused) = _GROUP.unpack_from(content, at)  # fmt: skip
    if serial == 0:
        return None
    kind = (latest & 0xFF) - 1
    calls = {}
    for number, collective in enumerate(names):
        counters = Calls(*_CALLS.unpack_from(content, at + _GROUP.size + number * _CALLS.size))
        if counters.over or counters.failed:
            calls[collective] = counters
    return Group(serial, id, text(name), rank, size, global_rank, names[kind] if 0 <= kind < len(names) else "", latest >> 8, collectives,
                 peer, max(0, launched - finished), progress, refused, calls)  # fmt: skip


def _peer(content: bytes, at: int) -> Peer | None:
    number, transport, *counters = _PEER.unpack_from(content, at)
    return Peer(number - 1, text(transport), *counters) if number and any(transport) else None


def text(field: bytes) -> str:
    """A text of another process, without what would move a terminal's cursor."""
    text = field.split(b"\0")[0].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _pid_inside(pid: int) -> int:
    """The id that the process has in its own namespace."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[-1]) for line in file if line.startswith("NSpid:")), pid)
    except OSError:
        return pid

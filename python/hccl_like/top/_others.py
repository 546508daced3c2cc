"""Counters of ranks on other hosts. A rank of this host asks them over the job's own ports, when a reader wants it: docs/top.md.

core/counters/question_file.h and process_group/diagnosis/other_hosts.cc have the same layout.
"""

from __future__ import annotations

import os
import random
import stat
import struct
import time
from contextlib import suppress
from dataclasses import replace

from hccl_like.top import _file
from hccl_like.top._file import Process, Refused

_NAME = "/memfd:hccl-like-questions"
_MAGIC, _VERSION = b"HCCLask\0", 1
_HEADER = struct.Struct("=8s II QQQ")  # magic, version, pid, asked, answered, bytes of the answer
_ASKED_AT = 16
_RANK = struct.Struct("=4I")  # rank; bytes of host, problem and counters, which follow
_MOST_BYTES = 1 << 30
_PATIENCE = 10.0  # the rank looks for questions twice a second, and has two seconds to ask
_REPEAT = 0.5


def ask(here: list[Process]) -> tuple[list[Process], dict[int, str]]:
    """The ranks of other hosts, and by rank why there are no counters of it. `here`: the job's ranks of this host. Raises Refused."""
    for one in here:
        for path in _file.files(one.pid, _NAME):
            with suppress(OSError):  # it has just ended
                return _parse(_answer(path, one))
    if all(len(here) >= one.size for one in here):
        return [], {}
    raise Refused(f"rank {here[0].rank} of this job cannot ask other hosts: its store is none of PyTorch's TCPStore, it had no memory for the "
                  "file, or HCCL_LIKE_REPORT_MS=0 keeps the thread away that looks for questions")  # fmt: skip


def _answer(path: str, asked: Process) -> bytes:
    place = f"the question file of process {asked.pid}"
    with open(path, "r+b", buffering=0) as file:
        status = os.fstat(file.fileno())
        if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.stat(f"/proc/{asked.pid}").st_uid:
            raise Refused(f"{place} is refused: others than the owner of the process may write it")
        before = _header(file, place)[0]
        number = struct.pack("=Q", random.getrandbits(63) | 1)
        deadline, again = time.monotonic() + _PATIENCE, 0.0
        while time.monotonic() < deadline:
            if time.monotonic() >= again:  # a rank that stops listening at this moment may have overlooked it
                os.pwrite(file.fileno(), number, _ASKED_AT)
                again = time.monotonic() + _REPEAT
            answered, size = _header(file, place)
            if answered not in (0, before) and size <= _MOST_BYTES:
                content = os.pread(file.fileno(), size, _HEADER.size)
                if _header(file, place)[0] == answered and len(content) == size:
                    return content
            time.sleep(0.01)
    raise Refused(f"rank {asked.rank} (pid {asked.pid}) did not ask the other hosts within {_PATIENCE:.0f} s")


def _header(file, place: str) -> tuple[int, int]:
    """The question that was answered, and the bytes of the answer."""
    content = os.pread(file.fileno(), _HEADER.size, 0)
    if len(content) < _HEADER.size or content[:8] != _MAGIC:
        raise Refused(f"{place} is refused: it does not begin as one")
    _, version, _, _, answered, size = _HEADER.unpack(content)
    if version != _VERSION:
        raise Refused(f"{place} has version {version}, and this hccl-like reads version {_VERSION}: use the hccl-like of the job")
    return answered, size


def _parse(answer: bytes) -> tuple[list[Process], dict[int, str]]:
    found, silent, at = [], {}, 0
    while at < len(answer):
        rank, *sizes = _RANK.unpack_from(answer, at)
        at += _RANK.size
        if at + sum(sizes) > len(answer):
            raise Refused("an answer of other hosts is refused: it is cut off")
        host, problem, content = (answer[at + sum(sizes[:part]) : at + sum(sizes[: part + 1])] for part in range(3))
        at += sum(sizes)
        name = _file.text(host)
        one = _file.parse(content[8:], f"the answer of rank {rank} ({name})") if content else None
        if one is None:
            silent[rank] = f"rank {rank} ({name}) does not answer: {_file.text(problem)}"
        else:
            found.append(replace(one, host=name, read_ns=struct.unpack_from("=Q", content)[0]))
    return found, silent

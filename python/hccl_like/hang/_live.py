"""Asks running ranks of this host for their flight recorder, by the ways that they offer: docs/hang.md."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hccl_like import _dumps
from hccl_like.hang import _processes
from hccl_like.hang._processes import Rank

_LIMIT = 30.0  # a rank looks for the signal twice a second; the first dump with stacks takes seconds of a busy processor
_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


class NoAnswer(Exception):
    """Why a rank tells nothing."""


def dumps(ranks: list[Rank]) -> tuple[list[_dumps.Dump], list[str]]:
    """What the ranks' recorders have now, and a sentence for each rank that tells nothing."""
    found, silent = [], []
    with ThreadPoolExecutor(max_workers=max(1, len(ranks))) as pool:
        for rank, asked in [(rank, pool.submit(_ask, rank)) for rank in ranks]:
            try:
                found.append(asked.result())
            except (NoAnswer, _dumps.Unreadable, OSError) as error:
                silent.append(f"rank {rank.number} (pid {rank.pid}) tells nothing: {error}")
    return found, silent


def _ask(rank: Rank) -> _dumps.Dump:
    if (state := _processes.state(rank.pid)) != "runs":
        raise NoAnswer(f"it {state}")
    server = rank.environment.get("TORCH_WORKER_SERVER_SOCKET")
    if server and (path := _path(rank, server)).exists():
        return _dumps.parse(_from_server(path), rank.number, str(path), time.time_ns())
    name = rank.environment.get("HCCL_LIKE_DUMP_SIGNAL")
    if not name:
        raise NoAnswer("it was started without HCCL_LIKE_DUMP_SIGNAL=USR2, and has no worker server")
    number = _signal_number(name)
    if not _processes.catches(rank.pid, number):
        raise NoAnswer(f"it does not listen to signal {name}: it has made no group yet")
    return _by_signal(rank, number)


def _by_signal(rank: Rank, number: int) -> _dumps.Dump:
    """By the file that the rank writes when it gets the signal."""
    prefix = next((rank.environment[name] for name in _PREFIXES if rank.environment.get(name)), None)
    path = _path(rank, f"{prefix or rank.environment.get('HOME', '/tmp') + '/.cache/torch/comm_lib_trace_rank_'}{rank.number}")
    before = _written(path)
    os.kill(rank.pid, number)
    deadline = time.monotonic() + _LIMIT
    while _written(path) == before:
        if time.monotonic() > deadline:
            raise NoAnswer(f"it did not write {path} within {_LIMIT:.0f} s of the signal")
        time.sleep(0.02)
    return _dumps.parse(path.read_bytes(), rank.number, str(path), time.time_ns())


def _from_server(path: Path) -> bytes:
    class Connection(http.client.HTTPConnection):
        def connect(self):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(_LIMIT)
            self.sock.connect(str(path))

    connection = Connection("localhost")
    try:
        connection.request("POST", "/handler/hccl_like_fr_trace")
        answer = connection.getresponse()
        content = answer.read()
    except http.client.HTTPException as error:
        raise NoAnswer(f"its worker server at {path} does not speak HTTP: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise NoAnswer(f"its worker server at {path} answers {answer.status} {answer.reason}: hccl-like is not loaded there")
    return content


def _path(rank: Rank, path: str) -> Path:
    """A path as the process sees it: in its folder, and in its container."""
    start = Path(f"/proc/{rank.pid}")
    return start / "root" / path.lstrip("/") if path.startswith("/") else start / "cwd" / path


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _signal_number(name: str) -> int:
    return int(name) if name.isdigit() else int(signal.Signals[f"SIG{name}"])

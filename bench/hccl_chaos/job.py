"""Runs the ranks of one case, each a forked process, and collects what became of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch.distributed as dist

from .store import served

GRACE = 10  # seconds beyond its time-out after which a rank that still runs counts as hanging


@dataclass
class Outcome:
    """What became of one rank."""

    kind: str  # "raised", "done", "hangs", "died"
    seconds: float = 0.0  # from the fault, or from the call, to the end of the call
    error: str = ""  # the exception's type
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.error} after {self.seconds:.2f} s: {self.text}" if self.error else self.kind


class Rank:
    """What a case's function gets: its place in the job, and the means to join it and to note what happens."""

    def __init__(self, rank: int, size: int, timeout: float, backend: str, folder: str, port: int, shared):
        self.rank, self.size, self.timeout = rank, size, timeout
        self.folder = folder
        self._backend, self._port, self._shared = backend, port, shared

    def join(self) -> None:
        """Makes the default group."""
        wait = timedelta(seconds=self.timeout)
        store = dist.TCPStore("127.0.0.1", self._port, is_master=False, timeout=wait)
        dist.init_process_group(self._backend, store=store, rank=self.rank, world_size=self.size, timeout=wait)

    def fault_now(self) -> None:
        """From here on time counts, on all ranks."""
        self._shared.value = time.monotonic()

    def attempt(self, call: Callable[[], object]) -> Outcome:
        """Makes the call and says how it ended."""
        begin = time.monotonic()
        try:
            call()
        except BaseException as error:
            return Outcome("raised", time.monotonic() - (self._shared.value or begin), type(error).__name__, str(error))
        return Outcome("done", time.monotonic() - (self._shared.value or begin))


def run(function: Callable[[Rank], Outcome], size: int, timeout: float, backend: str) -> list[Outcome]:
    """The outcomes by rank. Leaves no process behind."""
    folder = tempfile.mkdtemp(prefix="hccl-chaos-")
    shared = multiprocessing.Value("d", 0.0, lock=False)
    try:
        with served() as port:
            ranks = [Rank(rank, size, timeout, backend, folder, port, shared) for rank in range(size)]
            children = [_start(function, rank) for rank in ranks]
            deadline = time.monotonic() + 2 * timeout + GRACE
            return [_collect(pid, answer, deadline) for pid, answer in children]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(function, rank: Rank) -> tuple[int, int]:
    answer, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        os.dup2(os.open(os.path.join(rank.folder, f"stderr.{rank.rank}"), os.O_WRONLY | os.O_CREAT, 0o600), 2)
        outcome = rank.attempt(lambda: None)
        try:
            outcome = function(rank)
        except BaseException as error:  # not where the case expects it
            outcome = Outcome("raised", 0.0, type(error).__name__, f"unexpectedly: {error}")
        os.write(write_end, json.dumps(asdict(outcome)).encode())
        os._exit(0)
    os.close(write_end)
    return pid, answer


def _collect(pid: int, answer: int, deadline: float) -> Outcome:
    with os.fdopen(answer, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
        text = pipe.read() if ready else b""
    if not text and ready:  # it has ended, or has been stopped and closed nothing
        _, status = os.waitpid(pid, 0)
        return Outcome("died", text=f"exit status {os.waitstatus_to_exitcode(status)}")
    os.waitpid(pid, 0)
    return Outcome(**json.loads(text)) if text else Outcome("hangs")

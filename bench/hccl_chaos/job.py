"""Runs the ranks of one case, each a forked process, and collects what became of them."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from .store import served

BEGIN = 60  # seconds beyond the time-out in which a group may be made where that is not what is tried
GRACE = 10  # seconds beyond its time-out after which a rank that still runs counts as hanging


@dataclass
class Outcome:
    """What became of one rank."""

    kind: str  # "raised", "done", "hangs", "died"
    seconds: float = 0.0  # from the fault, or from the call, to the end of the call
    error: str = ""  # the exception's type
    text: str = ""
    figures: dict[str, float] = field(default_factory=dict)  # what else was measured

    def __str__(self) -> str:
        return f"{self.kind} {self.error} after {self.seconds:.2f} s: {self.text}" if self.error else f"{self.kind} {self.text}".strip()


class Rank:
    """What a case's function gets: its place in the job, and the means to join it and to note what happens."""

    def __init__(self, rank: int, job: Job, folder: str, hosts, address: tuple[str, int], shared):
        self.rank, self.size, self.timeout = rank, job.size, job.timeout
        self.backend, self.device, self.quick = job.backend, job.device, job.quick
        self.folder = folder  # the job's own, empty at first
        self.hosts = hosts
        self.host = hosts[rank * len(hosts) // job.size] if hosts else None
        self.figures: dict[str, float] = {}
        self._environment, self._address, self._shared = job.environment, address, shared

    def enter(self) -> None:
        """Makes the calling process this rank."""
        os.environ.update({name: value.format(folder=self.folder) for name, value in self._environment.items()})
        if self.host:
            self.host.enter()

    def store(self) -> dist.TCPStore:
        return dist.TCPStore(*self._address, is_master=False, timeout=timedelta(seconds=self.timeout))

    def join(self) -> None:
        """Makes the default group, in the time-out."""
        wait = timedelta(seconds=self.timeout)
        dist.init_process_group(self.backend, store=self.store(), rank=self.rank, world_size=self.size, timeout=wait)

    def begin(self) -> None:
        """The same, however long it takes: on a busy machine ranks start one after the other. The time-out is that of calls."""
        wait = timedelta(seconds=self.timeout + BEGIN)
        store = dist.TCPStore(*self._address, is_master=False, timeout=wait)
        dist.init_process_group(self.backend, store=store, rank=self.rank, world_size=self.size, timeout=wait)
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=self.timeout))

    def ones(self, elements: int) -> torch.Tensor:
        return torch.ones(elements, device=self.device)

    def synchronize(self) -> None:
        """Until the device has done what was queued."""
        if self.device != "cpu":
            getattr(torch, self.device).synchronize()

    def meet(self, place: str) -> None:
        """Waits for all ranks, by the store: no group takes part."""
        store = self.store()
        store.add(place, 1)
        deadline = time.monotonic() + self.timeout + BEGIN
        while store.add(place, 0) < self.size:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{store.add(place, 0)} of {self.size} ranks came to {place}")
            time.sleep(0.005)

    def fault_now(self) -> None:
        """From here on time counts, on all ranks."""
        self._shared.value = time.monotonic()

    def since_fault(self) -> float:
        return time.monotonic() - self._shared.value

    def attempt(self, call: Callable[[], object]) -> Outcome:
        """Makes the call and says how it ended."""
        begin = time.monotonic()
        try:
            call()
        except BaseException as error:
            return Outcome("raised", time.monotonic() - (self._shared.value or begin), type(error).__name__, str(error), self.figures)
        return Outcome("done", time.monotonic() - (self._shared.value or begin), figures=self.figures)


@dataclass
class Job:
    size: int
    timeout: float
    backend: str
    device: str = "cpu"
    hosts: int = 0  # on how many the ranks are, evenly; 0: on this one
    environment: dict[str, str] = field(default_factory=dict)  # of each rank; {folder} is the job's folder
    slack: float = 0  # seconds that ranks may work beside their time-outs
    quick: bool = False

    def run(self, function: Callable[[Rank], Outcome]) -> list[Outcome]:
        """The outcomes by rank. Leaves no process behind."""
        folder = tempfile.mkdtemp(prefix="hccl-chaos-")
        shared = multiprocessing.Value("d", 0.0, lock=False)
        try:
            with _hosts(self.hosts) as hosts, served(hosts[0] if hosts else None) as address:
                ranks = [Rank(rank, self, folder, hosts, address, shared) for rank in range(self.size)]
                children = [_start(function, rank) for rank in ranks]
                deadline = time.monotonic() + BEGIN + 2 * self.timeout + self.slack + GRACE
                return [_collect(pid, answer, deadline) for pid, answer in children]
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _hosts(count: int):
    if not count:
        yield None
        return
    from hosts import Hosts

    with Hosts(count) as hosts:
        yield hosts


def _start(function, rank: Rank) -> tuple[int, int]:
    answer, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        os.dup2(os.open(os.path.join(rank.folder, f"stderr.{rank.rank}"), os.O_WRONLY | os.O_CREAT, 0o600), 2)
        try:
            torch.set_num_threads(1)
            rank.enter()
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

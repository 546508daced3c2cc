"""The running measuring programs of one library: asks all ranks for a row, gathers their answers.

While others are measured its processes are stopped (SIGSTOP): some libraries have threads that never rest.
"""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Answer:
    """Microseconds: the average over the ranks of their medians, least times and 99th percentiles."""

    median: float
    least: float
    p99: float
    wrong: int


class Refused(Exception):
    """The library cannot, or (fatal) it ended or did not answer in time: it cannot be asked again."""

    def __init__(self, reason: str, fatal: bool = False):
        super().__init__(reason)
        self.fatal = fatal


class Server:
    def __init__(self, name: str, commands: list[list[str]], ranks: int, environment: dict, log: Path):
        self.name, self._ranks = name, ranks
        self._folder = Path(tempfile.mkdtemp(prefix=f"peer-{name}-"))
        for rank in range(ranks):
            os.mkfifo(self._folder / f"in.{rank}")
            os.mkfifo(self._folder / f"out.{rank}")
        self._log = open(log, "w")
        self._processes = [
            subprocess.Popen([part.replace("{pipes}", str(self._folder)) for part in command], env=environment,
                             stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True)
            for command in commands]
        # Opened for both ways, so that neither side waits for the other to open its end.
        self._requests = [os.open(self._folder / f"in.{rank}", os.O_RDWR) for rank in range(ranks)]
        self._answers = [os.open(self._folder / f"out.{rank}", os.O_RDWR) for rank in range(ranks)]
        self._pids: list[int] = []

    @property
    def folder(self) -> Path:
        return self._folder

    def start(self, seconds: float) -> None:
        """Waits until every rank is there; then they rest."""
        self._pids = [int(line.split()[1]) for line in self._lines(seconds)]
        self._signal(signal.SIGSTOP)

    def measure(self, collective: str, kind: str, size: int, warmup: int, iterations: int, batch: int,
                seconds: float) -> Answer:
        self._signal(signal.SIGCONT)
        request = f"{collective} {kind} {size} {warmup} {iterations} {batch}\n".encode()
        for pipe in self._requests:
            os.write(pipe, request)
        lines = self._lines(seconds)
        self._signal(signal.SIGSTOP)
        for line in lines:
            if not line.startswith("ok "):
                raise Refused(line.removeprefix("no "))
        values = [[float(word) for word in line.split()[1:]] for line in lines]
        median, least, p99 = (sum(column) / self._ranks for column in list(zip(*values))[:3])
        return Answer(median, least, p99, int(sum(row[3] for row in values)))

    def _lines(self, seconds: float) -> list[str]:
        """A line of each rank."""
        texts, until = [b""] * self._ranks, time.monotonic() + seconds
        while not all(text.endswith(b"\n") for text in texts):
            waiting = [pipe for pipe, text in zip(self._answers, texts) if not text.endswith(b"\n")]
            ready, _, _ = select.select(waiting, [], [], min(0.2, max(0.0, until - time.monotonic())))
            for pipe in ready:
                texts[self._answers.index(pipe)] += os.read(pipe, 4096)
            if ready:
                continue
            if time.monotonic() > until:
                raise Refused(f"no answer within {seconds:.0f} s", fatal=True)
            if any(process.poll() is not None for process in self._processes):
                raise Refused(f"its program ended: {self._last_words()}", fatal=True)
        return [text.decode().strip() for text in texts]

    def _last_words(self) -> str:
        self._log.flush()
        lines = [line for line in Path(self._log.name).read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:200] if lines else "without a word"

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def stop(self) -> None:
        self._signal(signal.SIGCONT)
        for pipe in self._requests:
            os.write(pipe, b"quit\n")
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the session that this class began
                process.wait()
        self._signal(signal.SIGKILL)
        for pipe in (*self._requests, *self._answers):
            os.close(pipe)
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

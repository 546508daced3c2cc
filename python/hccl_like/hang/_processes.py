"""The ranks of a job on this host, found in /proc: their settings, whether they run, and where their Python is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hccl_like._dumps import line_of

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_JOB = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID")
_STATES = {"T": "is stopped by a signal", "t": "is stopped by a debugger", "Z": "has ended", "X": "has ended"}
_PY_SPY_LIMIT = 20
_DATA_LOADER = "torch/utils/data/dataloader.py"


@dataclass(frozen=True)
class Rank:
    """A process that is a rank, with the environment that it was started with."""

    number: int
    pid: int
    environment: dict[str, str]

    @property
    def job(self) -> str:
        return ", ".join(f"{name}={self.environment[name]}" for name in _JOB if name in self.environment)


def named(pids: list[int]) -> list[Rank]:
    """The ranks with these process ids. Raises ValueError for a process that is none."""
    ranks = []
    for pid in pids:
        if not Path(f"/proc/{pid}").exists():
            raise ValueError(f"there is no process {pid} on this host")
        rank = _rank(pid)
        if rank is None:
            raise ValueError(f"process {pid} is no rank that can be looked at: its environment is another user's, or names no {_RANK[0]}")
        ranks.append(rank)
    return ranks


def jobs() -> dict[str, list[Rank]]:
    """The jobs of this host that use hccl-like, each with its ranks here by number."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _uses_us(int(entry.name)) and (rank := _rank(int(entry.name))):
            found[rank.pid] = rank
    by_job = defaultdict(list)
    for rank in sorted(found.values(), key=lambda rank: (rank.number, rank.pid)):
        parent = found.get(_parent(rank.pid))
        if parent is None or parent.number != rank.number:  # else a worker of a data loader, say
            by_job[rank.job].append(rank)
    return dict(by_job)


def state(pid: int) -> str:
    """"runs", or how it does not."""
    fields = _stat(pid)
    return _STATES.get(fields[0], "runs") if fields else "has ended"


def delayed_ns(pid: int) -> int:
    """How long the main thread has waited for a processor since it began; 0 where the kernel does not count that."""
    fields = _text(f"/proc/{pid}/schedstat").split()
    return int(fields[1]) if len(fields) == 3 else 0


def busiest(seconds: float, apart_from: Collection[int]) -> tuple[int, str, float] | None:
    """The other process of this host that takes the most processor time for so long: its id, name and processors."""
    before = _processor_seconds()
    time.sleep(seconds)
    took = {pid: now - before.get(pid, now) for pid, now in _processor_seconds().items() if pid not in apart_from}
    pid = max(took, key=took.__getitem__, default=0)
    return (pid, _text(f"/proc/{pid}/comm").strip(), took[pid] / seconds) if pid else None


def _processor_seconds() -> dict[int, float]:
    tick = os.sysconf("SC_CLK_TCK")
    found = {int(entry.name): _stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return {pid: (int(fields[11]) + int(fields[12])) / tick for pid, fields in found.items() if fields}


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal, which would end it otherwise."""
    mask = re.search(r"^SigCgt:\s*([0-9a-f]+)", _text(f"/proc/{pid}/status"), re.M)
    return mask is not None and bool(int(mask[1], 16) >> (number - 1) & 1)


def stacks(pids: list[int]) -> tuple[dict[int, list[dict]], list[str]]:
    """The frames of the main threads' Python, innermost first, as py-spy tells them; and why there are none where there are none."""
    program = _py_spy()
    if program is None:
        return {}, ["py-spy is not installed, so Python stacks are not shown: pip install py-spy"]
    found, problems = {}, []
    for pid in pids:
        try:
            found[pid] = _stack(program, pid)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            problems.append(f"py-spy could not read the stack of process {pid}: {error}")
    return found, problems


def _py_spy() -> str | None:
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _stack(program: str, pid: int) -> list[dict]:
    # --nonblocking: the process is not stopped for it.
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=_PY_SPY_LIMIT)
    if asked.returncode != 0:
        raise ValueError(next(iter(asked.stderr.strip().splitlines()), f"it ended with code {asked.returncode}"))
    threads = json.loads(asked.stdout)
    return next((thread["frames"] for thread in threads if thread["thread_name"] == "MainThread"), [])


def place(frames: list[dict]) -> str:
    """"in train, digits/train.py:88", or with the function inside it that is not the program's."""
    if not frames:
        return ""
    first = frames[0]
    program = line_of([(frame["filename"], frame["line"]) for frame in frames])
    inner = f"in {first['name']}, {'/'.join(Path(first['filename']).parts[-2:])}:{first['line']}"
    if any(frame["filename"].endswith(_DATA_LOADER) for frame in frames):
        inner = f"in a data loader ({inner.removeprefix('in ')})"
    return inner if not program or inner.endswith(f", {program}") else f"{inner}, called at {program}"


def _rank(pid: int) -> Rank | None:
    pairs = (part.partition("=") for part in _text(f"/proc/{pid}/environ").split("\0") if "=" in part)
    environment = {name: value for name, _, value in pairs}
    number = next((environment[name] for name in _RANK if environment.get(name, "").isdigit()), None)
    return None if number is None else Rank(int(number), pid, environment)


def _uses_us(pid: int) -> bool:
    return pid != os.getpid() and "/hccl_like/" in _text(f"/proc/{pid}/maps")


def _stat(pid: int) -> list[str]:
    """State, parent and so on."""
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:  # it has ended, or is another user's
        return ""

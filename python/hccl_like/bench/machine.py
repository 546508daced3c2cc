"""What the numbers depend on: host, processor, versions, and who else used the cores meanwhile."""

import os
import platform
import socket
import time

import torch


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def environment() -> dict:
    """One flat record; values are strings and numbers."""
    try:
        from importlib.metadata import version

        ours = version("hccl-like")
    except Exception:
        ours = "not installed"
    return {
        "hccl_like": ours, "torch": torch.__version__, "python": platform.python_version(),
        "host": socket.gethostname(), "kernel": platform.release(), "processor": processor(),
        "cores": len(os.sched_getaffinity(0)), "threads_per_rank": torch.get_num_threads(),
    }


class Load:
    """CPU seconds of the whole host and of this process since the last look."""

    def __init__(self):
        self._last = self._now()

    @staticmethod
    def _now():
        with open("/proc/stat") as lines:
            fields = [int(field) for field in next(lines).split()[1:9]]
        idle = fields[3] + fields[4]  # idle and waiting for disks
        busy = sum(fields) - idle
        tick = os.sysconf("SC_CLK_TCK")
        return busy / tick, (busy + idle) / tick, time.process_time()

    def since(self) -> tuple[float, float, float]:
        """(busy, capacity, own), and begins anew."""
        now = self._now()
        busy, capacity, own = (after - before for after, before in zip(now, self._last))
        self._last = now
        return busy, capacity, own


def foreign(busy: float, capacity: float, own: float) -> float | None:
    """The share of the host's cores that others used; None when too little time passed to tell."""
    if capacity < 0.1:
        return None
    return max(0.0, min(1.0, (busy - own) / capacity))

"""Starts the ranks of a small job on this machine, without torchrun: for ``hccl-like demo`` and ``hccl-like doctor``."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

_LISTENER = "_LOCAL_RANKS_LISTENER"  # the descriptor of the store's socket, which rank 0 inherits


@dataclass(frozen=True)
class Failure:
    rank: int
    # "ended with code 1"
    why: str
    # What it wrote to stderr.
    told: str


class Output:
    """What the ranks write to their standard output."""

    text = ""


def run(module: str, arguments: list[str], ranks: int, limit: float, output: Output | None = None) -> Failure | None:
    """Runs ``python -m module arguments`` once for each rank; the first that failed. What they print goes to `output`, or
    where our output goes.

    The store's port is never let go: rank 0 inherits the socket that listens on it.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=ranks) as listener, tempfile.TemporaryDirectory() as folder:
        shared = {"WORLD_SIZE": ranks, "MASTER_PORT": listener.getsockname()[1], _LISTENER: listener.fileno(),
                  "OMP_NUM_THREADS": 1}
        children = []
        printed = open(f"{folder}/output", "ab") if output else None
        for rank in range(ranks):
            variables = {name: str(value) for name, value in {**shared, "RANK": rank}.items()}
            with open(f"{folder}/{rank}", "wb") as errors:
                children.append(subprocess.Popen(
                    [sys.executable, "-m", module, *arguments], env={**os.environ, **variables}, stdout=printed,
                    stderr=errors, pass_fds=[listener.fileno()]))
        try:
            failed = _first_failure(children, limit)
        finally:
            for child in children:
                child.kill()
                child.wait()
        if output and printed:
            printed.close()
            with open(f"{folder}/output", errors="replace") as text:
                output.text = text.read()
        if failed is None:
            return None
        with open(f"{folder}/{failed[0]}", errors="replace") as told:
            return Failure(*failed, told.read())


def _first_failure(children: list[subprocess.Popen], limit: float) -> tuple[int, str] | None:
    """Waits for all; (rank, what happened) of the first that did not end well."""
    deadline = time.monotonic() + limit
    running = dict(enumerate(children))
    while running:
        for rank, child in list(running.items()):
            code = child.poll()
            if code is None:
                continue
            if code != 0:
                return rank, f"ended with code {code}" if code > 0 else f"was killed by signal {-code}"
            del running[rank]
        if time.monotonic() > deadline:
            return next(iter(running)), f"was not done after {limit:.0f} seconds"
        time.sleep(0.02)
    return None


def silence() -> None:
    """Whoever read our output has enough of it, as in `hccl-like demo | head -1`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def join():
    """In a rank: (rank, number of ranks), and the default group of "hccl-like" is made."""
    import torch
    import torch.distributed as dist

    from hccl_like import _imports

    _imports.ready()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    listener = int(os.environ[_LISTENER])
    if rank:
        os.close(listener)
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), ranks, is_master=rank == 0,
                          master_listen_fd=None if rank else listener)
    dist.init_process_group("hccl-like", store=store, rank=rank, world_size=ranks)
    return rank, ranks


def paths(device) -> list[str]:
    """How the peers of the default group are reached for tensors of a device, if the backend tells."""
    import torch.distributed as dist

    try:
        links = dist.group.WORLD._get_backend(device)._info()["links"]
    except (AttributeError, KeyError, RuntimeError):
        return []
    return sorted({str(link) for link in links if link})

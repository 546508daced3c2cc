"""Ranks are killed and replaced, again and again: how soon the others know, and how soon the job works again."""

import os
import random
import signal
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from .store import served

KNOWS, RECOVERS = 1.0, 3.0  # seconds after a death, at most
WORKS = 0.15  # seconds that a generation works before somebody is killed


def churn(seconds: float, ranks: int, timeout: float, backend: str, seed: int, patience: float) -> tuple[dict, list[str]]:
    """Figures (seconds) and what must not be. `patience` multiplies the limits."""
    with served() as port:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=timeout))
        return _churn(seconds, ranks, timeout, backend, random.Random(seed), store, patience)


def _churn(seconds, ranks, timeout, backend, chance, store, patience) -> tuple[dict, list[str]]:
    alive = {rank: _start(rank, 0, ranks, store.port, timeout, backend) for rank in range(ranks)}
    kills, noticed, recovered, problems, generation = 0, [], [], [], 0
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not problems:
            _await(store, f"works/{generation}", ranks, timeout)
            time.sleep(WORKS)
            victim = chance.randrange(ranks)
            killed_at = time.monotonic()
            os.kill(alive[victim], signal.SIGKILL)
            os.waitpid(alive[victim], 0)
            kills, generation = kills + 1, generation + 1
            alive[victim] = _start(victim, generation, ranks, store.port, timeout, backend)
            _await(store, f"works/{generation}", ranks, timeout)
            recovered.append(time.monotonic() - killed_at)
            for rank in range(ranks):
                if rank != victim:
                    noticed.append(float(store.get(f"noticed/{generation}/{rank}")) - killed_at)
    except Exception as error:
        problems.append(f"after {kills} kills: {error}")
    finally:
        for pid in alive.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if noticed and max(noticed) > KNOWS * patience:
        problems.append(f"a survivor noticed after {max(noticed):.2f} s (limit {KNOWS * patience:.1f} s)")
    if recovered and max(recovered) > RECOVERS * patience:
        problems.append(f"the job worked again after {max(recovered):.2f} s (limit {RECOVERS * patience:.1f} s)")
    middle = statistics.median
    figures = {"kills": kills, "noticed_median": middle(noticed or [0]), "noticed_max": max(noticed, default=0),
               "recovered_median": middle(recovered or [0]), "recovered_max": max(recovered, default=0)}
    return figures, problems


def _await(store, key: str, count: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while store.add(key, 0) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{store.add(key, 0)} of {count} ranks reached {key} in {timeout} s")
        time.sleep(0.002)


def _start(rank: int, generation: int, ranks: int, port: int, timeout: float, backend: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _live(rank, generation, ranks, port, timeout, backend)
    finally:
        os._exit(1)


def _live(rank: int, generation: int, ranks: int, port: int, timeout: float, backend: str) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=timeout))
    wait = timedelta(seconds=timeout)
    while True:
        prefix = dist.PrefixStore(f"generation/{generation}", store)
        dist.init_process_group(backend, store=prefix, rank=rank, world_size=ranks, timeout=wait)
        tensor = torch.ones(1 << 18)
        dist.all_reduce(tensor)
        store.add(f"works/{generation}", 1)
        try:
            while True:
                dist.all_reduce(tensor.fill_(1))
                if tensor[0] != ranks:
                    os._exit(2)
        except dist.DistBackendError:
            generation += 1
            store.set(f"noticed/{generation}/{rank}", str(time.monotonic()))
        dist.destroy_process_group()

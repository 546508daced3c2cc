"""Ranks are killed and replaced, again and again: how soon the others know, and how soon the job works again."""

import os
import random
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from .case import Settings
from .figure import Figure, Result
from .store import served

KNOWS, RECOVERS = 1.0, 3.0  # seconds after a death, at most
WORKS = 0.15  # seconds that a generation works before somebody is killed
RANKS = 4
WRONG = 2  # exit status of a rank whose sum is wrong


class Churn:
    name = "churn"
    what = "ranks are killed and replaced at random"
    quick = True

    def needs(self) -> str:
        return ""

    def try_it(self, settings: Settings) -> Result:
        with served() as (address, port):
            store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=settings.timeout))
            return _churn(settings, random.Random(settings.seed), store)


def _churn(settings: Settings, chance: random.Random, store) -> Result:
    timeout, backend = settings.timeout, settings.backend
    alive = {rank: _start(rank, 0, store.port, timeout, backend) for rank in range(RANKS)}
    kills, noticed, recovered, problems, generation = 0, [], [], [], 0
    begin = time.monotonic()
    try:
        while time.monotonic() < begin + settings.churn:
            _await(store, f"works/{generation}", timeout)
            time.sleep(WORKS)
            victim = chance.randrange(RANKS)
            killed_at = time.monotonic()
            os.kill(alive[victim], signal.SIGKILL)
            os.waitpid(alive[victim], 0)
            kills, generation = kills + 1, generation + 1
            alive[victim] = _start(victim, generation, store.port, timeout, backend)
            _await(store, f"works/{generation}", timeout)
            recovered.append(time.monotonic() - killed_at)
            noticed += [float(store.get(f"noticed/{generation}/{rank}")) - killed_at for rank in range(RANKS) if rank != victim]
    except Exception as error:
        problems.append(f"after {kills} kills: {error}")
    finally:
        for rank, pid in alive.items():
            os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, 0)[1] == WRONG << 8:
                problems.append(f"rank {rank} got a wrong sum")
    rate = kills / (time.monotonic() - begin)
    return Result(
        [
            Figure("kills in a second", 1 / settings.patience, [rate], "", at_least=True),
            Figure("every survivor of a kill knows after", KNOWS * settings.patience, noticed),
            Figure("the median survivor knows after", 0.1 * settings.patience, list(noticed), of="median"),
            Figure("the job works again after", RECOVERS * settings.patience, recovered),
            Figure("the median of that", 0.5 * settings.patience, list(recovered), of="median"),
        ],
        problems,
    )


def _await(store, key: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while store.add(key, 0) < RANKS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{store.add(key, 0)} of {RANKS} ranks reached {key} in {timeout} s")
        time.sleep(0.002)


def _start(rank: int, generation: int, port: int, timeout: float, backend: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        torch.set_num_threads(1)
        _live(rank, generation, port, timeout, backend)
    finally:
        os._exit(1)


def _live(rank: int, generation: int, port: int, timeout: float, backend: str) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=timeout))
    wait = timedelta(seconds=timeout)
    while True:
        prefix = dist.PrefixStore(f"generation/{generation}", store)
        dist.init_process_group(backend, store=prefix, rank=rank, world_size=RANKS, timeout=wait)
        tensor = torch.ones(1 << 18)
        dist.all_reduce(tensor)
        store.add(f"works/{generation}", 1)
        try:
            while True:
                dist.all_reduce(tensor.fill_(1))
                if tensor[0] != RANKS:
                    os._exit(WRONG)
        except dist.DistBackendError:
            generation += 1
            store.set(f"noticed/{generation}/{rank}", str(time.monotonic()))
        dist.destroy_process_group()

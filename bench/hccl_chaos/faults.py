"""Ranks that die, stop, stay away or are told to stop."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist

from .case import Case, at_the_time_out, soon
from .job import Outcome, Rank


def _later(seconds: float, rank: Rank, action) -> None:
    def act():
        rank.fault_now()
        action()

    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def _all_reduces(elements: int) -> None:
    tensor = torch.ones(elements)
    while True:
        dist.all_reduce(tensor)
        tensor.fill_(1)


def _killed(elements: int, touched_gib: int = 0):
    def function(rank: Rank) -> Outcome:
        rank.join()
        if rank.rank == 1:
            rank.ballast = torch.ones(touched_gib << 28)
        dist.barrier()
        if rank.rank == 1:
            _later(0.4, rank, lambda: os.kill(os.getpid(), signal.SIGKILL))
        return rank.attempt(lambda: _all_reduces(elements))

    return function


def _stopped(rank: Rank) -> Outcome:
    rank.join()
    dist.barrier()
    if rank.rank == 1:
        pid = os.getpid()
        if os.fork() == 0:  # so that the case ends
            time.sleep(rank.timeout + 3)
            os.kill(pid, signal.SIGKILL)
            os._exit(0)
        os.kill(pid, signal.SIGSTOP)
    return rank.attempt(lambda: dist.all_reduce(torch.ones(1 << 20)))


def _absent(rank: Rank) -> Outcome:
    rank.join()
    dist.barrier()
    if rank.rank == 1:
        time.sleep(rank.timeout + 3)
        return Outcome("done")
    return rank.attempt(lambda: dist.all_reduce(torch.ones(3)))


def _never_comes(rank: Rank) -> Outcome:
    if rank.rank == 1:
        time.sleep(rank.timeout + 3)
        return Outcome("done")
    return rank.attempt(rank.join)


def _dies_at_init(rank: Rank) -> Outcome:
    if rank.rank == 1:  # while it waits for the others, who find what it left in the store
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    else:
        time.sleep(0.8)
    return rank.attempt(rank.join)


def _aborted(rank: Rank) -> Outcome:
    rank.join()
    dist.barrier()
    if rank.rank == 1:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        _later(0.3, rank, backend.abort)
        return rank.attempt(lambda: dist.recv(torch.ones(1), 0))
    return rank.attempt(lambda: dist.recv(torch.ones(1), (rank.rank + 1) % rank.size))


def _interrupted(rank: Rank) -> Outcome:
    rank.join()
    dist.barrier()
    if rank.rank == 1:
        time.sleep(3)
        return Outcome("done")
    if rank.rank == 0:
        _later(0.5, rank, lambda: os.kill(os.getpid(), signal.SIGINT))
        return rank.attempt(lambda: dist.all_reduce(torch.ones(3)))
    time.sleep(0.5)
    return Outcome("raised", 0, "KeyboardInterrupt", "not this rank's part")


LOST = ("rank 1",)
CASES = [
    Case("kill", "SIGKILL in all_reduces of 64 MiB", _killed(16 << 20), (1,), names=LOST, within=soon),
    Case("kill-small", "SIGKILL in all_reduces of 8 bytes", _killed(2), (1,), names=LOST, within=soon),
    Case("kill-large", "SIGKILL of a rank that has touched 2 GiB", _killed(16 << 20, 2), (1,), names=LOST, within=soon),
    Case("stop", "SIGSTOP before an all_reduce of 4 MiB", _stopped, (1,), names=LOST, within=at_the_time_out),
    Case("absent", "a rank makes no call", _absent, (1,), names=LOST, within=at_the_time_out),
    Case("never", "a rank never joins", _never_comes, (1,), names=("[1",), within=at_the_time_out),
    Case("dies-at-init", "a rank dies while the group is made", _dies_at_init, (1,), within=at_the_time_out),
    Case("abort", "abort() from another thread while all wait", _aborted, names=("abort",), within=soon),
    Case("interrupt", "SIGINT while a rank waits", _interrupted, (1,), within=soon),
]

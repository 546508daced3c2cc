"""Ranks that die, stop, stay away or are told to stop."""

import os
import signal
import socket
import threading
import time

import torch
import torch.distributed as dist

from . import needs
from .case import Case, at_the_time_out, soon
from .job import Outcome, Rank

CALL = r"all_?reduce #\d+ \(float32, sum, \d+ bytes\)"  # operation and number
LOST = (rf"lost rank 1 \({socket.gethostname()}\)", CALL)
WAITED = (r"waiting for ranks? (0, )?1\b|(timeout|aborted) \(rank 1\)|lost rank 1", CALL)


def _later(seconds: float, rank: Rank, action) -> None:
    def act():
        rank.fault_now()
        action()

    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def all_reduces(rank: Rank, elements: int) -> None:
    """Until one fails."""
    tensor = rank.ones(elements)
    while True:
        dist.all_reduce(tensor)
        rank.synchronize()
        tensor.fill_(1)


def _killed(elements: int, touched_gib: int = 0):
    def function(rank: Rank) -> Outcome:
        if rank.rank == 1:
            rank.ballast = torch.ones(touched_gib << 28)  # seconds on a busy machine, which no call's time-out is to pay
        rank.begin()
        dist.all_reduce(rank.ones(elements))
        rank.synchronize()
        dist.barrier()
        if rank.rank == 1:
            _later(0.4, rank, kill_me)
        return rank.attempt(lambda: all_reduces(rank, elements))

    return function


def stop_me(rank: Rank) -> None:
    """SIGSTOP, for longer than the case lasts."""
    pid = os.getpid()
    if os.fork() == 0:  # so that the case ends
        time.sleep(2 * rank.timeout + 3)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    os.kill(pid, signal.SIGSTOP)


def _stopped(rank: Rank) -> Outcome:
    rank.begin()
    dist.barrier()
    if rank.rank == 1:
        stop_me(rank)

    def call():
        dist.all_reduce(rank.ones(1 << 20))
        if rank.device != "cpu":  # what fails in a stream is told by the next call
            rank.synchronize()
            dist.all_reduce(rank.ones(1))

    return rank.attempt(call)


def _absent(rank: Rank) -> Outcome:
    rank.begin()
    dist.barrier()
    if rank.rank == 1:
        time.sleep(rank.timeout + 3)
        return Outcome("done")
    return rank.attempt(lambda: dist.all_reduce(rank.ones(3)))


def _never_comes(rank: Rank) -> Outcome:
    if rank.rank == 1:
        time.sleep(rank.timeout + 3)
        return Outcome("done")
    return rank.attempt(rank.join)


def _stops_at_init(rank: Rank) -> Outcome:
    if rank.rank == 1:  # while it waits for the others, who find what it left in the store
        threading.Timer(0.3, lambda: stop_me(rank)).start()
        return rank.attempt(rank.join)
    time.sleep(0.8)
    return rank.attempt(lambda: (rank.join(), dist.all_reduce(rank.ones(3))))


def _dies_at_init(rank: Rank) -> Outcome:
    if rank.rank == 1:
        threading.Timer(0.3, kill_me).start()
    else:
        time.sleep(0.8)
    return rank.attempt(rank.join)


def _aborted(rank: Rank) -> Outcome:
    rank.begin()
    dist.barrier()
    if rank.rank == 1:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        _later(0.3, rank, backend.abort)
        return rank.attempt(lambda: dist.recv(torch.ones(1), 0))
    return rank.attempt(lambda: dist.recv(torch.ones(1), (rank.rank + 1) % rank.size))


def _interrupted(rank: Rank) -> Outcome:
    rank.begin()
    dist.barrier()
    if rank.rank == 1:
        time.sleep(3)
        return Outcome("done")
    if rank.rank == 0:
        _later(0.5, rank, lambda: os.kill(os.getpid(), signal.SIGINT))
        return rank.attempt(lambda: dist.all_reduce(torch.ones(3)))
    time.sleep(0.5)
    return Outcome("raised", 0, "KeyboardInterrupt", "not this rank's part")


SIM = {"device": "sim", "needs": needs.simulator}
TCP = {"environment": {"HCCL_LIKE_TRANSPORTS": "tcp"}}
KILL = {"victims": (1,), "names": LOST, "within": soon, "median": 0.1}
STOP = {"victims": (1,), "names": WAITED, "around": True}
CASES = [
    Case("kill", "SIGKILL in all_reduces of 64 MiB", _killed(16 << 20), trials=10, **KILL),
    Case("kill-sim", "the same on a device", _killed(16 << 20), trials=5, **KILL, **SIM),
    Case("kill-tcp", "the same between ranks that have TCP only", _killed(16 << 20), trials=5, **KILL, **TCP),
    Case("kill-small", "SIGKILL in all_reduces of 8 bytes", _killed(2), trials=5, **KILL),
    Case("kill-large", "SIGKILL in all_reduces of 64 MiB of a rank that has touched 4 GiB", _killed(16 << 20, 4), trials=5, slack=20,
         needs=needs.memory(7), quick=False, **KILL),
    Case("stop", "SIGSTOP before an all_reduce of 4 MiB", _stopped, **STOP),
    Case("stop-sim", "the same on a device", _stopped, **STOP, **SIM),
    Case("stop-tcp", "the same between ranks that have TCP only", _stopped, **STOP, **TCP),
    Case("absent", "a rank makes no call", _absent, **STOP),
    Case("never", "a rank never joins", _never_comes, (1,), names=(r"ranks \[[^]]*\b1\b",), around=True),
    Case("stops-at-init", "SIGSTOP while the group is made", _stops_at_init, (1,), names=(r"ranks? (\[[^]]*)?\b1\b",), around=True),
    Case("dies-at-init", "a rank dies while the group is made", _dies_at_init, (1,), names=(r"rank 1\b|ranks \[[^]]*\b1\b",),
         within=at_the_time_out),
    Case("abort", "abort() from another thread while all wait", _aborted, names=("abort",), within=soon),
    Case("interrupt", "SIGINT while a rank waits", _interrupted, (1,), within=soon),
]

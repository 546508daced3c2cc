"""Strangers who connect to a rank's ports, and a host that is short of descriptors."""

import os
import resource
import socket
import time

import torch
import torch.distributed as dist

from .case import Case, at_the_time_out
from .job import Outcome, Rank

GARBAGE = [bytes(8), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(range(256)) * 16, b""]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def listening_ports() -> list[int]:
    """The TCP ports on which this process listens."""
    sockets = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            sockets.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            pass
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/self/net/{table}") as lines:
            for line in list(lines)[1:]:
                field = line.split()
                if field[3] == "0A" and f"socket:[{field[9]}]" in sockets:
                    ports.add(int(field[1].rpartition(":")[2], 16))
    return sorted(ports)


def _visited(visitors: int, say: list[bytes]):
    def function(rank: Rank) -> Outcome:
        rank.join()
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        before, strangers, ports = _descriptors(), [], listening_ports()
        if rank.rank == 0 and not ports:
            return Outcome("raised", 0, "", "listens on no port")

        def job():
            if rank.rank == 0:
                for i in range(visitors):
                    stranger = socket.create_connection(("127.0.0.1", ports[i % len(ports)]), timeout=5)
                    strangers.append(stranger)
                    try:
                        stranger.sendall(say[i % len(say)])
                    except OSError:
                        pass  # it was shown the door
            for _ in range(200):
                dist.all_reduce(tensor.fill_(1))
                assert tensor[0] == rank.size
            # A stranger may stay for a second, which a rank sees when it looks at its sockets: while it waits for others.
            for _ in range(8):
                time.sleep(0.3 if rank.rank else 0)
                dist.barrier()
            held = _descriptors() - len(strangers) - before
            assert held <= 0, f"{held} descriptors more than before"
            for stranger in strangers:
                stranger.settimeout(0)
                try:
                    told = stranger.recv(4096)
                except OSError:
                    continue
                assert not told, f"a stranger was told {told!r}"

        return rank.attempt(job)

    return function


def _few_descriptors(free: int):
    def function(rank: Rank) -> Outcome:
        most = _descriptors() + free
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        outcome = rank.attempt(lambda: (rank.join(), dist.all_reduce(torch.ones(3))))
        return Outcome("done", outcome.seconds) if outcome.kind == "raised" else outcome  # both are an answer

    return function


CASES = [
    Case("garbage", "200 strangers say something else", _visited(200, GARBAGE), kind="done", within=lambda timeout: 6),
    Case("held", "1,000 strangers say nothing", _visited(1000, [b""]), kind="done", within=lambda timeout: 12, ranks=2),
    *(Case(f"descriptors-{free}", f"{free} descriptors are free", _few_descriptors(free), kind="done", within=at_the_time_out)
      for free in (2, 6, 9, 14)),
]

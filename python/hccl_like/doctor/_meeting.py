"""The store at which the ranks of a job meet, and why it cannot be reached."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch.distributed as dist

_LOOK = 1.0  # seconds for one more look at an address that could not be reached
_LISTENS = "0A"  # in /proc/net/tcp


class NoStore(Exception):
    """Why there is no store, in a sentence."""


def store(patience: float, later: float) -> dist.Store:
    """The job's store, which does not wait for ranks that do not come. `patience`: seconds to reach it; `later`: seconds for each
    answer afterwards. Raises NoStore."""
    import torch.distributed as dist

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    serves = os.environ["RANK"] == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        socket.getaddrinfo(address, port)  # torch would try a name that does not resolve until its time is over
    except OSError as error:
        raise NoStore(f"MASTER_ADDR={address} does not resolve on this host: {error.strerror}") from error
    try:
        found = dist.TCPStore(address, port, is_master=serves, wait_for_workers=False, timeout=timedelta(seconds=patience))
    except dist.DistError as error:
        raise NoStore(_why(address, port, serves) or str(error).splitlines()[0]) from error
    found.set_timeout(timedelta(seconds=later))
    return dist.PrefixStore(f"hccl-like/doctor/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", found)


def _why(address: str, port: int, serves: bool) -> str | None:
    """A sentence, or nothing where nothing is found."""
    if serves:
        taken = _holder(port)
        return None if taken is None else (
            f"port {port}, at which rank 0 has to serve the job's store, is taken by {taken}: give each job a MASTER_PORT of its own")
    where = f"{address}:{port} (MASTER_ADDR, MASTER_PORT)"
    try:
        socket.create_connection((address, port), timeout=_LOOK).close()
    except ConnectionRefusedError:
        return f"nobody listens at {where}: rank 0 has not started there, or ended"
    except TimeoutError:
        return f"nothing answers at {where}: a firewall drops this port (hccl-like fwports prints the rules), or that host is down"
    except OSError as error:
        if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return f"this host has no way to {where}: {error.strerror}"
        return None
    return None


def _holder(port: int) -> str | None:
    """"process 4711 (python train.py)", if a socket of this host listens at the port."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table) as lines:
            for fields in map(str.split, list(lines)[1:]):
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):  # it has ended, or is another user's
                if any(os.readlink(descriptor) in inodes for descriptor in (process / "fd").iterdir()):
                    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    return f"process {process.name} ({' '.join(filter(None, words))[:60].strip()})"
    return "a process of another user"

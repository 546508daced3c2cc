"""How ranks find each other under launchers that set no MASTER_ADDR: ``init_method="mpi://"`` and ``"slurm://"``.

``mpi://``: started by mpirun (MPICH, Intel MPI, Open MPI). Rank and size are MPI's; rank 0 opens a store and broadcasts
where it is. ``slurm://`` or ``slurm://:PORT``: started by srun. Rank and size are Slurm's; the store is on the first host of
the step's node list.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlparse

_TOKEN_KEY = "hccl_like/rendezvous"


def mpi(url: str, timeout: timedelta = timedelta(minutes=5), **_) -> Iterator[tuple]:
    from hccl_like import _extension, _transports

    extension = _extension.load()
    _transports.register(extension)
    patience = _milliseconds(timeout)
    rank, size = extension._mpi_world(patience)
    _agree("mpi", url, rank, size)
    store = None
    place = {}
    if rank == 0:
        token = secrets.token_hex(16)
        addresses = extension._addresses()
        store = _serve(addresses, 0, token, timeout)
        place = {"addresses": addresses, "port": store.port, "token": token}
    place = json.loads(extension._mpi_broadcast(json.dumps(place), patience))
    if store is None:
        store = _join(place["addresses"], place["port"], place["token"], timeout)
    yield store, rank, size


def slurm(url: str, timeout: timedelta = timedelta(minutes=5), **_) -> Iterator[tuple]:
    rank = _number("SLURM_PROCID", "PMIX_RANK", "PMI_RANK")
    size = _number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_SIZE")
    _agree("slurm", url, rank, size)
    parsed = urlparse(url)
    job = f"{os.environ.get('SLURM_JOB_ID', '0')}.{os.environ.get('SLURM_STEP_ID', '0')}"
    port = parsed.port or _port_of(job)
    if rank == 0:
        try:
            store = _serve(_own_addresses(parsed.hostname), port, job, timeout)
        except Exception as error:
            raise RuntimeError(
                f"slurm://: rank 0 cannot listen on port {port}, which follows from the job's number ({error}); "
                f"name a free one on all ranks: slurm://:{port + 1}"
            ) from error
    else:
        store = _join([parsed.hostname or _first_host()], port, job, timeout)
    yield store, rank, size


def _agree(scheme: str, url: str, rank: int, size: int) -> None:
    """torch puts what the program passed to init_process_group into the URL."""
    query = dict(re.findall(r"(rank|world_size)=(-?\d+)", urlparse(url).query))
    for name, value in (("rank", rank), ("world_size", size)):
        if int(query.get(name, value)) != value:
            raise ValueError(
                f"init_process_group was told {name}={query[name]}, and the launcher says {value}: leave {name} out with {scheme}://"
            )


def _number(*names: str) -> int:
    for name in names:
        if name in os.environ:
            return int(os.environ[name])
    raise RuntimeError(f"none of {', '.join(names)} is set: slurm:// is for processes that srun has started")


def _milliseconds(timeout: timedelta) -> int:
    return max(1, int(timeout.total_seconds() * 1000))


def _port_of(job: str) -> int:
    """One of 20,000: every rank of a step gets the same, two steps on a host hardly ever do."""
    number, step = (int(part) if part.isdigit() else 0 for part in job.split("."))
    return 10_000 + (number * 31 + step) % 20_000


def _serve(addresses: list[str], port: int, token: str, timeout: timedelta):
    """A store for those who will look for it at one of these addresses. It listens at one address, or at all of the host's."""
    import torch.distributed as dist

    listener = _listen(addresses, port)
    at, port = listener.getsockname()[:2]
    reached_by = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(at, at)
    store = dist.TCPStore(
        reached_by, port, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    store.set(_TOKEN_KEY, token)
    return store


def _listen(addresses: list[str], port: int) -> socket.socket:
    if len(addresses) == 1:
        family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
        return socket.create_server((addresses[0], port), family=family, backlog=4096)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, backlog=4096, dualstack_ipv6=True)
    return socket.create_server(("0.0.0.0", port), backlog=4096)


def _own_addresses(host: str | None) -> list[str]:
    """The one address at which all others will look for rank 0's store, by the URL's host; none where that isn't sure."""
    if host is None:
        one_host = len(list(hosts(_node_list()))) == 1 and _first_host() == "127.0.0.1"
        return ["127.0.0.1"] if one_host else []
    found: dict[str, None] = {}
    with contextlib.suppress(OSError):
        found = dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    own = [address for address in found if _is_own(address)]
    public = [address for address in own if not ipaddress.ip_address(address.partition("%")[0]).is_loopback]
    if public or not own:
        return public if len(public) == 1 else []
    # A host's own name often leads to loopback, there and nowhere else.
    return sorted(own, key=lambda address: ":" in address)[:1] if host == "localhost" or host in own else []


def _is_own(address: str) -> bool:
    with contextlib.suppress(OSError):
        socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET).close()
        return True
    return False


def _join(addresses: list[str], port: int, token: str, timeout: timedelta):
    """The store that knows the token, at the first of these addresses where it answers."""
    import torch.distributed as dist

    deadline = time.monotonic() + timeout.total_seconds()
    refused: dict[str, str] = {}
    for round_ in itertools.count():
        for address in addresses:
            left = deadline - time.monotonic()
            if left <= 0:
                why = "; ".join(f"{place}: {reason}" for place, reason in refused.items())
                raise TimeoutError(f"rank 0's store cannot be reached: {why}")
            try:
                socket.create_connection((address, port), timeout=min(left, 1 + round_)).close()
                store = dist.TCPStore(address, port, is_master=False, timeout=timeout, wait_for_workers=False)
                if store.check([_TOKEN_KEY]) and store.get(_TOKEN_KEY).decode() == token:
                    return store
                refused[f"{address}:{port}"] = "another job's store answers"
            except (OSError, RuntimeError) as error:
                refused[f"{address}:{port}"] = str(error).splitlines()[0]
        time.sleep(min(0.05 * 2 ** min(round_, 5), 1))


def _node_list() -> str:
    names = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    if not names:
        raise RuntimeError("SLURM_STEP_NODELIST is not set: name the host of rank 0, slurm://HOST")
    return names


def _first_host() -> str:
    first = next(hosts(_node_list()))
    # On the host itself its name need not resolve.
    return "127.0.0.1" if first in (os.environ.get("SLURMD_NODENAME"), socket.gethostname()) else first


def hosts(names: str) -> Iterator[str]:
    """The hosts of a Slurm node list, in order: ``gpu[01-03,7],login`` is gpu01, gpu02, gpu03, gpu7, login."""
    for group in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", names):
        parts = re.split(r"\[([^\]]*)\]", group)
        choices = [[part] if i % 2 == 0 else list(_numbers(part)) for i, part in enumerate(parts)]
        for chosen in itertools.product(*choices):
            yield "".join(chosen)


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))

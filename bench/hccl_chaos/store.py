"""The store of a job, in a process of its own, as torchrun's is in its agent: who forks ranks had better have no threads."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator

import torch.distributed as dist


@contextlib.contextmanager
def served(host=None) -> Iterator[tuple[str, int]]:
    """Address and port at which a TCPStore is served meanwhile, of `host` (hosts.py), else of this host."""
    address = host.address() if host else "127.0.0.1"
    with host.listen() if host else socket.create_server((address, 0), backlog=64) as listener:
        port = listener.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            _serve(address, port, listener.detach(), host)
    try:
        yield address, port
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _serve(address: str, port: int, listener: int, host) -> None:
    parent = os.getppid()
    if host:  # a store that serves is a client of its own, too
        host.enter()
    store = dist.TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener)
    while os.getppid() == parent and store is not None:
        signal.sigtimedwait([], 0.5)
    os._exit(0)

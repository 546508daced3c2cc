"""The store of a job, in a process of its own, as torchrun's is in its agent: who forks ranks had better have no threads."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator

import torch.distributed as dist


@contextlib.contextmanager
def served() -> Iterator[int]:
    """The port on which a TCPStore is served meanwhile."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        port = listener.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            parent = os.getppid()
            store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
            while os.getppid() == parent and store is not None:
                signal.sigtimedwait([], 0.5)
            os._exit(0)
    try:
        yield port
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

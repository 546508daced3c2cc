"""Starts the ranks when nobody else did."""

import os
import socket
import subprocess
import sys

LISTENER = "HCCL_BENCH_LISTENER"  # the descriptor that spawn() leaves to rank 0


def main(argv: list[str]) -> int:
    """Runs the benchmark here if this is a rank already (torchrun), or in -g ranks of its own."""
    if "--replay" in argv:
        from . import replay

        return replay.main(argv)
    if "RANK" in os.environ:
        from .run import run

        return run(argv)
    from .options import parse

    return spawn(parse(argv).nproc, [sys.executable, "-m", "hccl_like.bench", *argv])


def spawn(ranks: int, command: list[str]) -> int:
    """Runs the command once per rank, with torchrun's variables; the first failure ends the others.

    Less than torchrun, and sooner there: no agent that imports torch first, no report on top of the error itself. The
    port is never let go: rank 0 inherits the socket that listens on it.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=ranks) as listener:
        variables = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": listener.getsockname()[1], LISTENER: listener.fileno(), "OMP_NUM_THREADS": 1}
        children = []
        for rank in range(ranks):
            mine = variables | {"RANK": rank, "LOCAL_RANK": rank}
            environment = os.environ | {name: str(value) for name, value in mine.items()}
            children.append(subprocess.Popen(command, env=environment, pass_fds=[listener.fileno()]))
    try:
        return _first_failure(children)
    finally:
        for child in children:
            child.kill()
            child.wait()


def store():
    """The store of ranks that spawn() started; None under torchrun, whose variables init_process_group reads itself."""
    if LISTENER not in os.environ:
        return None
    from torch.distributed import TCPStore

    first = os.environ["RANK"] == "0"
    descriptor = int(os.environ[LISTENER])
    if not first:
        os.close(descriptor)
    return TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"]), is_master=first,
                    master_listen_fd=descriptor if first else None)


def _first_failure(children: list[subprocess.Popen]) -> int:
    waiting = {child.pid: child for child in children}
    while waiting:
        pid, status = os.wait()
        child = waiting.pop(pid, None)
        if child is None:
            continue
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            return child.returncode if child.returncode > 0 else 1
    return 0

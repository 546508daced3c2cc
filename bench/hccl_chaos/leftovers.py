"""What a job leaves behind on its host when all of its ranks are killed: it runs in a place of its own, where nothing else is."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

from . import needs
from .case import Settings
from .figure import Figure, Result
from .intruder import wait_until
from .job import Job, Rank

_CLONE_NEWNS, _CLONE_NEWNET, _CLONE_NEWIPC = 0x0002_0000, 0x4000_0000, 0x0800_0000
_MS_REC, _MS_PRIVATE, _PR_SET_CHILD_SUBREAPER = 0x4000, 0x4_0000, 36
_libc = ctypes.CDLL(None, use_errno=True)
FOLDERS = ("/dev/shm", "/tmp", "/var/tmp", "/run")
RANKS = 4


class Leftovers:
    what = "SIGKILL of all ranks in the middle of a job"
    quick = True

    def __init__(self, name: str, device: str, transports: str):
        self.name, self._device, self._transports = name, device, transports

    def needs(self) -> str:
        return needs.root() or _needs_what_it_hides() or (needs.simulator() if self._device == "sim" else "")

    def try_it(self, settings: Settings) -> Result:
        """In a process that sees no other's files and sockets, and inherits its children's children."""
        answer, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(answer)
            with os.fdopen(tell, "w") as out:
                try:
                    _enter_a_place_of_its_own()
                    out.write("\n".join(_leftovers(settings, self._device, self._transports)))
                except BaseException as error:
                    out.write(f"could not be tried: {type(error).__name__}: {error}")
            os._exit(0)
        os.close(tell)
        with os.fdopen(answer) as pipe:
            left = pipe.read().splitlines()
        os.waitpid(pid, 0)
        return Result([Figure("files, sockets, segments, processes left", 0, [len(left)], "")], left)


def _needs_what_it_hides() -> str:
    """Empty folders take the place of these, also for the ranks."""
    for path in map(os.path.realpath, (__file__, sys.prefix, sys.executable)):
        for folder in FOLDERS:
            if os.path.commonpath([path, folder]) == folder:
                return f"takes a checkout and a Python outside of {folder}: {path}"
    return ""


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"cannot {what}")


def _enter_a_place_of_its_own() -> None:
    _check(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWIPC), "have a place of its own")
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "keep mounts private")
    for folder in FOLDERS:
        _check(_libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"mode=1777"), f"mount {folder}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1), "inherit grandchildren")
    os.environ["HOME"] = tempfile.mkdtemp()
    os.chdir(os.environ["HOME"])


def _leftovers(settings: Settings, device: str, transports: str) -> list[str]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)  # of the store: it is served by this process's child
    port = listener.getsockname()[1]
    server = _start(lambda: _serve(port, listener.detach()))
    listener.close()
    try:
        job = Job(RANKS, settings.timeout, settings.backend, device, environment={"HCCL_LIKE_TRANSPORTS": transports})
        return _left_by(job, port, server)
    finally:
        os.kill(server, signal.SIGKILL)


def _left_by(job: Job, port: int, server: int) -> list[str]:
    before = set(_things())
    with tempfile.TemporaryDirectory() as folder:
        ranks = [Rank(rank, job, folder, None, ("127.0.0.1", port), None) for rank in range(RANKS)]
        pids = [_start(lambda rank=rank: _work(rank)) for rank in ranks]
        try:
            if not wait_until(lambda: len(os.listdir(folder)) == RANKS, 60):
                return [f"could not be tried: {len(os.listdir(folder))} of {RANKS} ranks work"]
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
    time.sleep(0.5)  # for what is about to go by itself
    return [*sorted(set(_things()) - before), *_processes(server)]


def _start(function) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            os._exit(1)
    return pid


def _serve(port: int, listener: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener)
    while store:
        time.sleep(60)


def _work(rank: Rank) -> None:
    """Calls of all kinds and sizes, with symmetric and shared memory, until it is killed."""
    torch.set_num_threads(1)
    rank.enter()
    rank.begin()
    groups = [dist.group.WORLD, dist.new_group()]
    tensors = [rank.ones(elements) for elements in (2, 300, 1 << 22)]
    if rank.backend == "hccl-like":
        import hccl_like

        tensors.append(hccl_like.empty(1 << 20).fill_(1))
    other = (rank.rank + 2) % rank.size
    turns = 0
    while True:
        for group in groups:
            for tensor in tensors:
                dist.all_reduce(tensor.fill_(1), group=group)
        works = [dist.isend(tensors[1], other), dist.irecv(torch.empty_like(tensors[1]), other)]
        for work in works:
            work.wait()
        rank.synchronize()
        turns += 1
        if turns == 3:
            open(os.path.join(rank.folder, str(rank.rank)), "w").close()


def _things():
    """Whatever can be found without knowing who made it."""
    for folder in FOLDERS:
        for path, _, files in os.walk(folder):
            yield from (f"file {os.path.join(path, name)}" for name in files)
    for kind in ("shm", "sem", "msg"):
        with open(f"/proc/sysvipc/{kind}") as table:
            yield from (f"System V {kind} {line.split()[1]}" for line in list(table)[1:])
    for kind in ("tcp", "tcp6", "unix", "udp"):
        with open(f"/proc/self/net/{kind}") as table:
            for line in list(table)[1:]:
                field = line.split()
                ended = kind.startswith("tcp") and field[3] in ("06", "04", "05", "01", "08")  # of the store's clients, or waiting
                if not ended:
                    yield f"socket {kind} {field[-1] if kind == 'unix' else field[1]}"


def _processes(server: int) -> list[str]:
    """Children of ranks, which became this process's when the ranks died, that have not ended."""
    while os.waitpid(-1, os.WNOHANG)[0]:
        pass
    left = _children() - {server}
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return [f"process {child}" for child in left]


def _children() -> set[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        return {int(pid) for pid in children.read().split()}


CASES = [
    Leftovers("leftovers", "cpu", "shm,tcp"),
    Leftovers("leftovers-tcp", "cpu", "tcp"),
    Leftovers("leftovers-sim", "sim", "shm,tcp"),
]

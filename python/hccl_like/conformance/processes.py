"""Processes that do not outlive whoever started them. Linux's means, harmless elsewhere."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Called by a forked process: it is killed when `parent`, who forked it, ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def adopt_orphans() -> None:
    """What a test leaves behind becomes a child of this process, which can then kill and reap it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_group(leader: int) -> None:
    """Kills a process group at once, whoever of it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def reap_others(known: set[int]) -> None:
    """Kills and reaps every child that is not known: orphans of tests that left the test's process group."""
    for pid in _children() - known:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _children() -> set[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as names:
            return {int(pid) for pid in names.read().split()}
    except OSError:
        return set()


def redirect_output(path: str) -> None:
    """Sends stdout and stderr, of Python and of C++, to the end of a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def tail(path: str, size: int = 20_000) -> str:
    """The end of a file, as text; empty if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            length = file.tell()
            file.seek(max(0, length - size))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return text if length <= size else f"... {length - size} bytes before\n{text}"

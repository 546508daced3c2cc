"""Hosts that are short of descriptors, of memory, of shared memory."""

import ctypes
import os
import resource
import signal

import torch.distributed as dist

from . import needs
from .case import Case, at_the_time_out
from .impostors import either
from .intruder import descriptors
from .job import Outcome, Rank

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x0002_0000, 0x4000, 0x4_0000
_libc = ctypes.CDLL(None, use_errno=True)


def _at_init(shorten):
    """`shorten(rank)` is called before the group is made: either all work, or those that can't say why."""

    def function(rank: Rank) -> Outcome:
        tensors = _ready(rank)
        shorten(rank)
        return either(rank.attempt(lambda: (rank.join(), _right_sums(rank, tensors))))

    return function


def _while_it_runs(shorten):
    def function(rank: Rank) -> Outcome:
        tensors = _ready(rank)
        rank.begin()
        dist.all_reduce(tensors[0])
        shorten(rank)

        def job():
            _right_sums(rank, tensors)
            _right_sums(rank, tensors, dist.new_group())
            dist.send(tensors[1], 1) if rank.rank == 0 else dist.recv(tensors[1], 0)

        return either(rank.attempt(job))

    return function


def _ready(rank: Rank) -> list:
    """What a program has before it makes a group: tensors, and the extension."""
    if rank.backend == "hccl-like":
        import hccl_like

        hccl_like.Options()
    return [rank.ones(elements) for elements in (3, 300, 1 << 20)]


def _right_sums(rank: Rank, tensors: list, group=None) -> None:
    for tensor in tensors:
        dist.all_reduce(tensor.fill_(1), group=group)
        assert tensor[0] == tensor[-1] == rank.size, f"a wrong sum: {tensor[:3]}"


def _descriptors(free: int):
    def shorten(rank: Rank) -> None:
        most = descriptors() + free
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    return shorten


def _addresses(mebibytes: int):
    def shorten(rank: Rank) -> None:
        with open("/proc/self/statm") as pages:
            used = int(pages.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (mebibytes << 20),) * 2)

    return shorten


def _file_size(mebibytes: int):
    """Memory files cannot be made larger: what a file system without space would come to. Only one rank is hit."""

    def shorten(rank: Rank) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does
        if rank.rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (mebibytes << 20,) * 2)

    return shorten


def _small_dev_shm(rank: Rank) -> None:
    """A mount of 64 KiB, all of them taken, as in a container."""
    if _libc.unshare(_CLONE_NEWNS) or _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "cannot have mounts of its own")
    if _libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=64k"):
        raise OSError(ctypes.get_errno(), "cannot mount a small /dev/shm")
    with open("/dev/shm/full", "wb", buffering=0) as full:
        try:
            while full.write(bytes(4096)):
                pass
        except OSError:
            pass


def _full_dev_shm(rank: Rank) -> Outcome:
    _small_dev_shm(rank)
    tensors = _ready(rank)
    rank.begin()

    def job():
        if rank.backend == "hccl-like":
            import hccl_like

            tensors.append(hccl_like.empty(1 << 20))
        _right_sums(rank, tensors)

    return rank.attempt(job)


ANSWERED = {"kind": "done", "within": at_the_time_out}
CASES = [
    *(Case(f"descriptors-{free}", f"{free} descriptors are free when a group is made", _at_init(_descriptors(free)), **ANSWERED)
      for free in (1, 2, 4, 6, 7, 8, 9, 11, 14)),
    *(Case(f"descriptors-{free}-later", f"{free} descriptors are free while a job runs", _while_it_runs(_descriptors(free)), ranks=2,
           **ANSWERED) for free in (0, 1, 3)),
    *(Case(f"addresses-{free}", f"{free} MiB of addresses are free when a group is made", _at_init(_addresses(free)), ranks=2, **ANSWERED)
      for free in (4, 64, 256, 512, 1024)),
    *(Case(f"addresses-{free}-later", f"{free} MiB of addresses are free while a job runs", _while_it_runs(_addresses(free)), ranks=2,
           **ANSWERED) for free in (1, 16)),
    *(Case(f"file-size-{size}", f"one rank's memory files have {size} MiB at most", _at_init(_file_size(size)), ranks=3, **ANSWERED)
      for size in (0, 1, 100)),
    Case("dev-shm", "/dev/shm is full", _full_dev_shm, kind="done", needs=needs.root),
    Case("dev-shm-sim", "the same on a device", _full_dev_shm, kind="done", device="sim", needs=lambda: needs.root() or needs.simulator()),
]

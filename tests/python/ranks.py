"""Runs a function on several ranks, each a process of its own.

The test's process has imported torch and touched no device and no group, so a rank is forked from it in milliseconds.
Nothing needs to be pickled on the way in; what a rank returns is pickled on its way out.
"""

import contextlib
import faulthandler
import os
import pickle
import select
import signal
import socket
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from hosts import place

PATIENCE = float(os.environ.get("RANKS_PATIENCE", 1))  # by which ranks that a sanitizer slows down may take longer

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}


class RankFailed(AssertionError):
    """One or more ranks raised, died or did not end; the message holds what each of them said."""


def run_ranks(
    function, size, *arguments, timeout=60, environment=None, group=True, group_timeout=30, hosts=None, layout=None, **init
):
    """Calls `function(rank, size, *arguments)` on `size` ranks and returns their results, by rank.

    With `group`, each rank is in the default process group of "hccl-like" meanwhile; `init` goes to
    init_process_group. A rank that ends by os._exit or is killed gives its exit code instead of a result; one that
    crashes has failed. `hosts` (of hosts.py) run them, each the ranks that `layout` gives it. `environment` is the same for
    all ranks, or a function that makes it from a rank.
    """
    places = place(hosts, size, layout) if hosts else [None] * size
    listener = places[0].listen() if hosts else socket.create_server(("127.0.0.1", 0), backlog=64)
    ranks = [
        _Rank(rank, size, function, arguments, listener, environment or {}, group, group_timeout, init, places[rank])
        for rank in range(size)
    ]
    listener.close()
    _collect(ranks, time.monotonic() + timeout * PATIENCE)
    bad = [rank for rank in ranks if rank.problem]
    if bad:
        raise RankFailed("\n".join(f"--- rank {rank.number} of {size}: {rank.problem}" for rank in bad))
    return [rank.result for rank in ranks]


def make_store(rank, listener):
    """The store of a run; rank 0 serves it on the socket that the ranks were forked with."""
    address, port = listener.getsockname()[:2]
    if rank == 0:
        return dist.TCPStore(address, port, is_master=True, master_listen_fd=listener.detach(), wait_for_workers=False)
    listener.close()
    return dist.TCPStore(address, port, is_master=False, wait_for_workers=False)


def _await_all(store, rank, size):
    """The rank that serves the store may fail at once: not before the others have reached it, who would look for it for minutes."""
    store.set(f"came/{rank}", "")
    if rank == 0:
        store.wait([f"came/{other}" for other in range(size)], timedelta(seconds=30))


def _say_made(store, rank):
    with contextlib.suppress(dist.DistError):  # rank 0 may have ended as a test wants
        store.set(f"made/{rank}", "")


def _outlive_making(store, rank, size):
    """Groups are made without a meeting at the end: the rank that serves the store may be through before others have read it."""
    if rank == 0:
        with contextlib.suppress(dist.DistError):  # a rank that failed says so itself
            store.wait([f"made/{other}" for other in range(size)], timedelta(seconds=10))


class _Rank:
    def __init__(self, number, size, function, arguments, listener, environment, group, group_timeout, init, host):
        self.number = number
        self.result = None
        self.problem = None
        self.output = b""
        self.pipe, write_end = os.pipe()
        self.trace_path = f"/tmp/hccl_like_test_{os.getpid()}_{number}.trace"
        self.pid = os.fork()
        if self.pid:
            os.close(write_end)
            return
        os.close(self.pipe)
        status = 1
        try:
            trace = open(self.trace_path, "w")
            faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)
            os.environ.update(environment(number) if callable(environment) else environment)
            if host:
                host.enter()
            answer = _work(number, size, function, arguments, listener, group, group_timeout, init)
            with os.fdopen(write_end, "wb") as out:
                pickle.dump(answer, out)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def finish(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.trace_path)
        if self.problem:
            return
        if not self.output:
            self.result = os.waitstatus_to_exitcode(status)
            if -self.result in _CRASHES:
                self.problem = f"crashed: {signal.Signals(-self.result).name}"
            return
        kind, value = pickle.loads(self.output)
        if kind == "result":
            self.result = value
        else:
            self.problem = value

    def give_up(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.2)
        with contextlib.suppress(FileNotFoundError):
            self.problem = "did not end in time; it is here:\n" + open(self.trace_path).read()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _work(rank, size, function, arguments, listener, group, group_timeout, init):
    try:
        torch.set_num_threads(1)
        if group:
            store = make_store(rank, listener)
            _await_all(store, rank, size)
            dist.init_process_group(
                "hccl-like",
                store=store,
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=group_timeout),
                **init,
            )
            _say_made(store, rank)
            value = function(rank, size, *arguments)
            if dist.is_initialized():
                dist.destroy_process_group()
            _outlive_making(store, rank, size)
        else:
            value = function(rank, size, listener, *arguments)
        return "result", value
    except BaseException:
        return "failed", traceback.format_exc()


def _collect(ranks, deadline):
    open_pipes = {rank.pipe: rank for rank in ranks}
    while open_pipes:
        ready, _, _ = select.select(list(open_pipes), [], [], max(0, deadline - time.monotonic()))
        if not ready:
            for rank in open_pipes.values():
                rank.give_up()
            break
        for pipe in ready:
            data = os.read(pipe, 1 << 20)
            if data:
                open_pipes[pipe].output += data
            else:
                del open_pipes[pipe]
    for rank in ranks:
        rank.finish()

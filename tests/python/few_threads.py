"""A program for test_few_threads.py, with few_threads.c preloaded: two ranks of which rank 1 can start only so many threads more.
Prints what each rank of each case said, as JSON. Without arguments it reads the names of cases, one a line, and answers each with a line."""

import ctypes
import json
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from ranks import RankFailed, make_store, run_ranks
from test_staged_calls import COUNT, IN_SLICES, without_plugin

T = 5  # seconds


def leave(rank, count):
    """So many threads for rank 1."""
    if rank == 1:
        ctypes.c_int.in_dll(ctypes.CDLL(None), "threads_left").value = count


def said(body):
    """What it returns, or what it raised, and the seconds that it took."""
    began = time.monotonic()
    try:
        what = body()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
    return what, time.monotonic() - began


def summed(device="cpu", count=3, **how):
    tensor = torch.ones(count, device=device)
    work = dist.all_reduce(tensor, **how)
    if work is not None:
        work.wait()
    return "right" if tensor.cpu().eq(2).all() else "wrong"


def made(rank, size, listener, count):
    store = make_store(rank, listener)
    store.wait(["here"]) if rank == 1 else store.set("here", "")
    leave(rank, count)

    def body():
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=T))
        return summed()

    return said(body)


def nobody_waits(rank, size):
    leave(rank, 0)
    return said(lambda: summed(count=1 << 20, async_op=True))


def future(rank, size):
    leave(rank, 0)
    tensor = torch.ones(3)
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["asked"])
    work = dist.all_reduce(tensor, async_op=True)
    what = said(lambda: work.get_future().wait()[0].tolist())
    again = said(lambda: work.get_future().wait()[0].tolist())
    result = said(lambda: str(work.get_future_result().wait()))
    if rank == 1:
        store.set("asked", "")
    work.wait()
    return [what, again, result, (tensor.tolist(), 0)]


def hook(rank, size):
    leave(rank, 0)
    what = said(lambda: dist.group.WORLD._register_on_completion_hook(lambda info: None))
    leave(rank, -1)
    return [what, said(summed)]


def profiled(rank, size):
    with torch.autograd.profiler.profile():
        leave(rank, 0)
        return said(lambda: summed(count=1 << 16, async_op=True))


def staged(rank, size):
    torch.ones(COUNT, device="sim")  # the stream has its thread
    leave(rank, 0)
    return [said(lambda: summed("sim", COUNT)), said(lambda: summed("sim", COUNT))]


def in_stream(rank, size):
    leave(rank, 0)
    return [said(lambda: summed("sim")), said(lambda: summed("sim"))]


def in_stream_later(rank, size):
    summed("sim")
    return in_stream(rank, size)


def timed_out(rank, size):
    leave(rank, 0)
    if rank == 0:
        return said(lambda: dist.distributed_c10d._get_default_store().wait(["over"]))
    what = said(summed)
    dist.distributed_c10d._get_default_store().set("over", "")
    return what


def attempt(function, *arguments, **how):
    try:
        return run_ranks(function, 2, *arguments, **{"group_timeout": T, "timeout": 30} | how)
    except RankFailed as failure:
        return f"failed: {failure}"


CASES = {
    **{f"made with {count}": lambda count=count: attempt(made, count, group=False) for count in range(4)},
    "nobody waits": lambda: attempt(nobody_waits),
    "future": lambda: attempt(future),
    "hook": lambda: attempt(hook),
    "profiled": lambda: attempt(profiled),
    "timed out": lambda: attempt(timed_out),
    "staged": lambda: attempt(without_plugin, staged, group=False, environment=IN_SLICES),
    "in a stream": lambda: attempt(in_stream),
    "in a stream, later": lambda: attempt(in_stream_later),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or iter(sys.stdin.readline, ""):
        print(json.dumps(CASES[name.rstrip()]()), flush=True)

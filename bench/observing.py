"""Measures what counters and flight recorder together cost an 8-byte all_reduce.

    python bench/observing.py --ranks 2 --turns 40

Sessions with both and without both take turns in the same processes. TORCH_FR_BUFFER_SIZE=0 turns the recorder off. A process counts the calls
of 128 groups: without counters, 128 groups come before the measured one. Of a session the batch counts than which a tenth is faster.
Printed are the medians of the sessions, and the median and the quartiles of the differences in a pair.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import hccl_like  # noqa: F401

BATCHES, CALLS, COUNTED = 100, 200, 128


def session(watched: bool, rank: int, ranks: int, path: str) -> float:
    """Microseconds of a call."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000" if watched else "0"
    dist.init_process_group("hccl-like", init_method=f"file://{path}", rank=rank, world_size=ranks)
    tensor = torch.zeros(2)
    for _ in range(0 if watched else COUNTED):
        dist.all_reduce(tensor, group=dist.new_group())
    times = []
    for _ in range(BATCHES + 5):
        begin = time.perf_counter()
        for _ in range(CALLS):
            dist.all_reduce(tensor)
        times.append(time.perf_counter() - begin)
    dist.destroy_process_group()
    return statistics.quantiles(times[5:], n=10)[0] / CALLS * 1e6


def main(rank: int, ranks: int, turns: int, folder: str) -> None:
    if ranks <= os.cpu_count():
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.set_num_threads(1)
    session(True, rank, ranks, f"{folder}/warm")
    us = {watched: [] for watched in (True, False)}
    for turn in range(turns):
        for watched in (turn % 2 == 0, turn % 2 != 0):
            us[watched].append(session(watched, rank, ranks, f"{folder}/{turn}{watched}"))
    if rank == 0:
        costs = [100 * (on / off - 1) for on, off in zip(us[True], us[False])]
        low, middle, high = statistics.quantiles(costs, n=4)
        print(f"{ranks} ranks: {statistics.median(us[False]):.2f} us without, {statistics.median(us[True]):.2f} us with; "
              f"{middle:+.1f} % (quartiles {low:+.1f} to {high:+.1f} %)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, (args.ranks, args.turns, folder), nprocs=args.ranks)

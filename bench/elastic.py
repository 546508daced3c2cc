#!/usr/bin/env python3
"""How long processes take to join a running job, for how long its ranks are held up, and what a suspension costs: docs/elastic.md.

    python bench/elastic.py                       # 8 ranks on 2 hosts (network namespaces, which take root) take 4 more in
    python bench/elastic.py --founders 2 --joiners 1 --hosts 1
    python bench/elastic.py --suspend --founders 8 --hosts 2
"""

import argparse
import os
import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "python"))
from hosts import Hosts  # noqa: E402
from ranks import make_store, run_ranks  # noqa: E402

import hccl_like  # noqa: E402


def rank_of_bench(rank, size, listener, founders):
    """Milliseconds from join() to the first right sum, or of the longest grow() that took somebody in."""
    store = make_store(rank, listener)
    held = 0.0
    if rank < founders:
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=founders, timeout=timedelta(seconds=60))
        dist.all_reduce(torch.ones(1))
        dist.barrier()
        if rank == 0:
            store.set("started", "")
    else:
        store.wait(["started"])
        begin = time.perf_counter()
        hccl_like.join(store)
    while dist.get_world_size() < size:
        dist.all_reduce(torch.ones(1))
        if rank < founders:
            begin = time.perf_counter()
        grown = hccl_like.grow()
        if rank < founders and grown:
            held = max(held, time.perf_counter() - begin)
    tensor = torch.full((1000,), float(dist.get_rank()))
    dist.all_reduce(tensor)
    took = held if rank < founders else time.perf_counter() - begin
    assert tensor.eq(size * (size - 1) / 2).all()
    dist.destroy_process_group()
    store.set(f"left/{rank}", "")
    if rank == 0:
        store.wait([f"left/{one}" for one in range(size)])
    return 1000 * took


def rank_that_suspends(rank, size):
    """Milliseconds of suspend(), and from resume() to the first right sum."""
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    dist.barrier()
    begin = time.perf_counter()
    hccl_like.suspend()
    suspended = time.perf_counter()
    hccl_like.resume()
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    end = time.perf_counter()
    assert tensor.eq(size).all()
    return 1000 * (suspended - begin), 1000 * (end - suspended)


def suspensions(size, hosts, turns):
    layout = [rank % hosts for rank in range(size)]
    suspends, resumes = [], []
    for _ in range(turns):
        with Hosts(hosts) as places:
            times = run_ranks(rank_that_suspends, size, hosts=places, layout=layout, timeout=120)
        suspends.append(max(suspend for suspend, _ in times))
        resumes.append(max(resume for _, resume in times))
    print(f"{size} ranks on {hosts} hosts; medians of {turns}, the slowest rank")
    print(f"suspend(): {statistics.median(suspends):.0f} ms")
    print(f"from resume() to the first right sum: {statistics.median(resumes):.0f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--founders", type=int, default=8)
    parser.add_argument("--joiners", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("-n", "--turns", type=int, default=5)
    parser.add_argument("--suspend", action="store_true", help="suspend and resume the founders instead")
    options = parser.parse_args()
    if options.suspend:
        return suspensions(options.founders, options.hosts, options.turns)
    size = options.founders + options.joiners
    layout = [rank % options.hosts for rank in range(size)]
    joined, held = [], []
    for _ in range(options.turns):
        with Hosts(options.hosts) as hosts:
            times = run_ranks(rank_of_bench, size, options.founders, hosts=hosts, layout=layout, group=False, timeout=120)
        held.append(max(times[: options.founders]))
        joined.append(max(times[options.founders :]))
    print(f"{options.founders} ranks on {options.hosts} hosts, {options.joiners} join; medians of {options.turns}")
    print(f"from join() to the first right sum, of the last one: {statistics.median(joined):.0f} ms")
    print(f"running ranks held up by one grow(), the longest: {statistics.median(held):.0f} ms")


if __name__ == "__main__":
    main()

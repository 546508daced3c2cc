#!/usr/bin/env python3
"""How long processes take to join a running job, and for how long its ranks are held up: docs/elastic.md.

    python bench/elastic.py                       # 8 ranks on 2 hosts (network namespaces, which take root) take 4 more in
    python bench/elastic.py --founders 2 --joiners 1 --hosts 1
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--founders", type=int, default=8)
    parser.add_argument("--joiners", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("-n", "--turns", type=int, default=5)
    options = parser.parse_args()
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

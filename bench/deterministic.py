#!/usr/bin/env python3
"""What HCCL_LIKE_DETERMINISTIC=1 costs: all_reduce and reduce_scatter of float32 with and without it, in turns, in several layouts of ranks.

    python bench/deterministic.py            # network namespaces are the hosts, which takes root
    python bench/deterministic.py -b 1M 64M -n 20
"""

import argparse
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

from staged_perf import size_of

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "python"))
from hosts import Hosts  # noqa: E402
from ranks import run_ranks  # noqa: E402

import hccl_like  # noqa: E402

LAYOUTS = {"2 ranks": [0, 0], "4 ranks": [0] * 4, "2 hosts of 2": [0, 0, 1, 1], "4 hosts of 1": [0, 1, 2, 3]}


def medians_in_turns(call, groups, turns, warm_up):
    """Of `call(group)`, in seconds, for each group: the groups take turns, and the first `warm_up` turns do not count."""
    taken = [[] for _ in groups]
    for turn in range(warm_up + turns):
        for number, group in enumerate(groups):
            dist.barrier()
            begin = time.perf_counter()
            call(group)
            if turn >= warm_up:
                taken[number].append(time.perf_counter() - begin)
    return [statistics.median(one) for one in taken]


def rank_of_bench(rank, size, sizes, turns):
    """By (collective, bytes): medians of the usual group and of a deterministic one, in microseconds."""
    torch.set_num_threads(1)
    groups = [dist.new_group(pg_options=hccl_like.Options(deterministic=one)) for one in (False, True)]
    times = {}
    for bytes_ in sizes:
        whole = torch.ones(bytes_ // 4)
        part = torch.empty(whole.numel() // size)
        calls = {
            "all_reduce": lambda group: dist.all_reduce(whole, dist.ReduceOp.MAX, group=group),
            "reduce_scatter": lambda group: dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.MAX, group=group),
        }
        for name, call in calls.items():
            times[name, bytes_] = [1e6 * one for one in medians_in_turns(call, groups, turns, warm_up=2)]
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--sizes", type=size_of, nargs="+", default=[size_of(one) for one in ("4K", "64K", "1M", "16M")])
    parser.add_argument("-n", "--turns", type=int, default=15)
    options = parser.parse_args()
    print(f"{'':14} {'collective':15} {'bytes':>10} {'usual us':>10} {'determin.':>10}  ratio")
    for title, layout in LAYOUTS.items():
        with Hosts(max(layout) + 1) as hosts:
            every = run_ranks(
                rank_of_bench, len(layout), options.sizes, options.turns, hosts=hosts, layout=layout, timeout=600
            )
        for (name, bytes_), (usual, other) in every[0].items():
            print(f"{title:14} {name:15} {bytes_:10} {usual:10.1f} {other:10.1f}  {other / usual:5.2f}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What compression of float32 gains on a slow network: calls with and without it, in turns, between hosts with a rate limit.

    python bench/compression.py              # network namespaces are the hosts, which takes root and tc (iproute2)
    python bench/compression.py -b 1M 64M -n 5 --rate 10gbit
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist

from deterministic import medians_in_turns
from staged_perf import size_of

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "python"))
from hosts import Hosts  # noqa: E402
from ranks import run_ranks  # noqa: E402

import hccl_like  # noqa: E402

LAYOUTS = {"2 hosts of 1": [0, 1], "2 hosts of 2": [0, 0, 1, 1], "3 hosts of 1": [0, 1, 2]}
COMPRESSIONS = ("none", "bf16", "mx8", "mx4")


def rank_of_bench(rank, size, sizes, turns):
    """By (collective, bytes): the median of each compression, in milliseconds."""
    torch.set_num_threads(1)
    groups = [dist.new_group(pg_options=hccl_like.Options(compression=compression)) for compression in COMPRESSIONS]
    times = {}
    for bytes_ in sizes:
        whole = torch.randn(bytes_ // 4 // size * size)
        part = torch.randn(whole.numel() // size)
        calls = {
            "all_reduce": lambda group: dist.all_reduce(whole, dist.ReduceOp.AVG, group=group),
            "reduce_scatter": lambda group: dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.AVG, group=group),
            "all_gather": lambda group: dist.all_gather_into_tensor(whole, part, group=group),
        }
        for name, call in calls.items():
            times[name, bytes_] = [1e3 * one for one in medians_in_turns(call, groups, turns, warm_up=1)]
    return times


def limit(hosts, rate, burst):
    """Of what each host sends."""
    for host in hosts:
        host.run(["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", burst, "latency", "50ms"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--sizes", type=size_of, nargs="+", default=[size_of(one) for one in ("16K", "64K", "256K", "1M", "8M", "64M")])
    parser.add_argument("-n", "--turns", type=int, default=5)
    parser.add_argument("--rate", default="1gbit", help="of each host, as tc writes it; 0: no limit (default: 1gbit)")
    parser.add_argument("--burst", default="256kb", help="bytes that no limit slows down; small calls need less, as 32kb (256kb)")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    options = parser.parse_args()
    print(f"{'':13} {'collective':15} {'bytes':>9}" + "".join(f" {compression + ' ms':>9}" for compression in COMPRESSIONS) + "".join(f" {compression:>6}" for compression in COMPRESSIONS[1:]))
    for title in options.layouts:
        layout = LAYOUTS[title]
        with Hosts(max(layout) + 1) as hosts:
            if options.rate != "0":
                limit(hosts, options.rate, options.burst)
            every = run_ranks(rank_of_bench, len(layout), options.sizes, options.turns, hosts=hosts, layout=layout, timeout=1200)
        for (name, bytes_), times in every[0].items():
            row = "".join(f" {time_:9.2f}" for time_ in times) + "".join(f" {times[0] / one:5.2f}x" for one in times[1:])
            print(f"{title:13} {name:15} {bytes_:9}{row}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Large calls that streams of the devices make among themselves, on the simulator as a discrete device.

In one run: each collective by streams and, with HCCL_LIKE_DIRECT=0, through the host; what the links allow for the algorithm;
bytes to and from the host; the share of a core that threads other than the device's use, in the first rank.

    python bench/device_streams_perf.py
    python bench/device_streams_perf.py -g 4 -b 16M -d bfloat16
    python bench/device_streams_perf.py -g 4 --hosts 2     # network namespaces, which take root; beside what the host's bus allows
"""

import argparse
import contextlib
import glob
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from staged_perf import size_of

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "python"))
from hosts import Hosts  # noqa: E402

RATES = {"TORCH_SIM_LINK_GBPS": "1", "TORCH_SIM_HOST_GBPS": "0.25", "TORCH_SIM_KERNEL_GBPS": "4"}


def calls(size, ranks, dtype, hosts=1):
    """Collective and, in units of `size` bytes, what the busiest link carries; with several hosts, the busier way of the host's bus."""
    whole = torch.ones(size // dtype.itemsize, dtype=dtype, device="sim")
    other, part = torch.empty_like(whole), torch.ones(whole.numel() // ranks, dtype=dtype, device="sim")
    share = (ranks - 1) / ranks
    if hosts > 1:
        each = ranks // hosts
        return {
            "all_reduce": (lambda: dist.all_reduce(whole), 1 / each),
            "reduce": (lambda: dist.reduce(whole, 0), 1 / each),
            "reduce_scatter": (lambda: dist.reduce_scatter_tensor(part, whole), 1 / each),
            "all_gather": (lambda: dist.all_gather_into_tensor(other, part), (hosts - 1) / ranks),
            "broadcast": (lambda: dist.broadcast(whole, 0), 1 / each),
        }
    # A broadcast is a scatter by a binomial tree, then an all_gather.
    return {
        "all_reduce": (lambda: dist.all_reduce(whole, dist.ReduceOp.MAX), 2 * share),
        "all_reduce, average": (lambda: dist.all_reduce(whole, dist.ReduceOp.AVG), 2 * share),
        "reduce": (lambda: dist.reduce(whole, 0, dist.ReduceOp.MAX), 2 * share),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.MAX), share),
        "all_gather": (lambda: dist.all_gather_into_tensor(other, part), share),
        "broadcast": (lambda: dist.broadcast(whole, 0), 2 * share),
        "all_to_all": (lambda: dist.all_to_all_single(other, whole), share),
        "send, recv": (lambda: round_a_ring(whole, other), 1),
    }


def round_a_ring(given, taken):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pair = [dist.P2POp(dist.isend, given, (rank + 1) % ranks), dist.P2POp(dist.irecv, taken, (rank - 1) % ranks)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()


def processor_time():
    """Nanoseconds of all threads but the device's."""
    used = 0
    for thread in glob.glob("/proc/self/task/*"):
        try:
            with open(f"{thread}/comm") as name, open(f"{thread}/schedstat") as spent:
                used += 0 if name.read().startswith("sim") else int(spent.read().split()[0])
        except OSError:  # it has just ended
            pass
    return used


def measure(rank, options, hosts, store, environment, results):
    os.environ.update(environment)
    if hosts:
        hosts[rank * len(hosts) // options.ranks].enter()
    dist.init_process_group("hccl-like", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    for name, (call, _) in calls(options.size, options.ranks, options.dtype, options.hosts).items():
        times, used = [], []
        for turn in range(options.turns + 1):
            torch.sim.synchronize()
            dist.barrier()
            torch.sim.reset_traffic()
            begin, before = time.perf_counter(), processor_time()
            call()
            torch.sim.synchronize()
            times.append(time.perf_counter() - begin)
            used.append((processor_time() - before) / 1e9 / times[-1])
        moved = torch.sim.traffic()
        if rank == 0:
            through_host = moved["host_to_device"] + moved["device_to_host"]
            results[name] = (statistics.median(times[1:]), statistics.median(used[1:]), through_host)
    dist.destroy_process_group()


def run(options, environment):
    several = Hosts(options.hosts, mtu=9000) if options.hosts > 1 else contextlib.nullcontext([])
    with multiprocessing.Manager() as manager, tempfile.TemporaryDirectory() as folder, several as hosts:
        results = manager.dict()
        multiprocessing.spawn(measure, (options, list(hosts), f"{folder}/store", environment, results), nprocs=options.ranks)
        return dict(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-g", "--ranks", type=int, default=2)
    parser.add_argument("-b", "--size", type=size_of, default=64 << 20, help="bytes of the larger tensor (64M)")
    parser.add_argument("-d", "--dtype", type=lambda name: getattr(torch, name), default=torch.float32)
    parser.add_argument("-n", "--turns", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=1, help="that the ranks fill in order (1)")
    options = parser.parse_args()
    os.environ.update({"TORCH_SIM_DISCRETE": "1", "OMP_NUM_THREADS": "1"} | {k: v for k, v in RATES.items() if k not in os.environ})
    limit, name = ("host bus allows", "HOST") if options.hosts > 1 else ("links allow", "LINK")
    rate = float(os.environ[f"TORCH_SIM_{name}_GBPS"]) * 1e9
    by_streams, by_host = run(options, {}), run(options, {"HCCL_LIKE_DIRECT": "0"})
    print(f"# {options.ranks} ranks, {options.size} bytes, {options.dtype}; medians of {options.turns}, of rank 0")
    print(f"{'collective':22}{'ms':>8}{limit:>16}{'':>6}{'host bytes':>12}{'of a core':>11}{'through the host, ms':>22}{'ratio':>7}")
    for name, (_, units) in calls(options.ranks * options.dtype.itemsize, options.ranks, options.dtype, options.hosts).items():
        took, used, moved = by_streams[name]
        allowed = units * options.size / rate
        print(
            f"{name:22}{took * 1e3:8.1f}{allowed * 1e3:16.1f}{allowed / took:6.0%}{moved:12}{used:11.1%}"
            f"{by_host[name][0] * 1e3:22.1f}{by_host[name][0] / took:7.1f}"
        )


if __name__ == "__main__":
    main()

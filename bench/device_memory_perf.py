#!/usr/bin/env python3
"""Large calls on an accelerator whose memory network cards reach: through memory of the host, and directly, in turns in one run.

Two sets of ranks, one with HCCL_LIKE_FABRIC_DEVICE_MEMORY=0, take turns, so that both meet the machine in the same state. The settings
that choose the transport and the provider are taken from the environment. Without such a card, one laid over the provider tcp:

    cc -shared -fPIC tests/python/card.c -o libcard.so -ldl -lpthread
    cc -shared -fPIC -I. tests/python/stripped_plugin.c -o libstripped.so -ldl
    export PLUGIN=$(python -c 'import torch_sim.plugin as p; print(p.library_path())') WITHOUT=map
    export HCCL_LIKE_DEVICE_PLUGINS=sim=$PWD/libstripped.so
    export HCCL_LIKE_TRANSPORTS=fabric HCCL_LIKE_FABRIC_PROVIDER=tcp HCCL_LIKE_FABRIC_LIBRARY=$PWD/libcard.so
    python bench/device_memory_perf.py --copy-bandwidth 1G
"""

import argparse
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from staged_perf import calls, size_of

WAYS = {"staged": "0", "direct": "1"}


def rank_main(rank, way, arguments, port, orders, times):
    os.environ["HCCL_LIKE_FABRIC_DEVICE_MEMORY"] = WAYS[way]
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, arguments.ranks, is_master=rank == 0)
    dist.init_process_group("hccl-like", store=store, rank=rank, world_size=arguments.ranks)
    device = torch.accelerator.current_accelerator()
    send, receive = (torch.zeros(arguments.largest // 4, device=device) for _ in range(2))
    while order := orders.get():
        name, size = order
        run = calls(name, send[: size // 4], receive[: size // 4], arguments.ranks)
        dist.barrier()
        begin = time.perf_counter()
        run()
        torch.accelerator.synchronize()
        times.put(time.perf_counter() - begin)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collectives", nargs="*", default=["send", "broadcast", "all_gather", "alltoall"])
    parser.add_argument("--smallest", type=size_of, default="1M")
    parser.add_argument("--largest", type=size_of, default="64M")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--copy-bandwidth", type=size_of, help="bytes a second of a simulated device's bus, each way")
    arguments = parser.parse_args()
    if arguments.copy_bandwidth:
        os.environ["TORCH_SIM_HOST_GBPS"] = str(arguments.copy_bandwidth / 1e9)
    start = multiprocessing.get_context("spawn")
    sets = {}
    for way in WAYS:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        orders = [start.SimpleQueue() for _ in range(arguments.ranks)]
        times = start.SimpleQueue()
        for rank in range(arguments.ranks):
            start.Process(target=rank_main, args=(rank, way, arguments, port, orders[rank], times), daemon=True).start()
        sets[way] = orders, times

    def timed(way, order):
        """Seconds of the slower rank."""
        orders, times = sets[way]
        for one in orders:
            one.put(order)
        return max(times.get() for _ in orders)

    print(f"# {arguments.ranks} ranks, microseconds, median of {arguments.repetitions} in turns")
    print("# collective          bytes     staged     direct   staged / direct")
    for name in arguments.collectives:
        size = arguments.smallest
        while size <= arguments.largest:
            seconds = {way: [] for way in WAYS}
            for repetition in range(arguments.repetitions + 2):
                for way in WAYS:
                    took = timed(way, (name, size))
                    if repetition >= 2:
                        seconds[way].append(took)
            staged, direct = (1e6 * statistics.median(seconds[way]) for way in WAYS)
            print(f"  {name:14} {size:10} {staged:10.0f} {direct:10.0f} {staged / direct:17.2f}", flush=True)
            size *= 4
    for orders, _ in sets.values():
        for one in orders:
            one.put(None)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How well a large call on a device without a plugin overlaps its copies with the network.

In one run, on the same ranks: the copy from the device alone, the copy to it alone, the same collective on pinned host
tensors alone, and the call on the device. A call that overlaps perfectly takes as long as the slowest of the three; one
that does not, as long as all of them together.

    python bench/staged_perf.py                            # copies as fast as memory: they take the cores from the network
    python bench/staged_perf.py --copy-bandwidth 2G        # as copy engines would: the simulator's copies sleep
"""

import argparse
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_of(text):
    unit = text[-1].upper() if text[-1].isalpha() else ""
    return int(float(text[: len(text) - len(unit)]) * UNITS[unit])


COLLECTIVES = "all_reduce broadcast reduce_scatter all_gather alltoall uneven send gather scatter".split()


def collective(name):
    if name not in COLLECTIVES:
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(COLLECTIVES)}")
    return name


def calls(name, send, receive, ranks):
    """The collective on these tensors of `bytes`; `receive` is for those that do not work in place."""
    part, rank = send.numel() // ranks, dist.get_rank()
    # Of what goes to the ranks the last has most, and rank after rank another is the last.
    splits = [part // 2] * ranks
    splits[(-rank - 1) % ranks] = send.numel() - part // 2 * (ranks - 1)

    def message():
        """From the first rank to the last."""
        if rank == 0:
            dist.send(send, ranks - 1)
        elif rank == ranks - 1:
            dist.recv(receive, 0)

    return {
        "all_reduce": lambda: dist.all_reduce(send),
        "broadcast": lambda: dist.broadcast(send, 0),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(receive[:part], send),
        "all_gather": lambda: dist.all_gather_into_tensor(receive, send[:part]),
        "alltoall": lambda: dist.all_to_all_single(receive, send),
        "uneven": lambda: dist.all_to_all_single(receive, send, splits, splits),
        "send": message,
        "gather": lambda: dist.gather(send[:part], list(receive.chunk(ranks)) if rank == 0 else None),
        "scatter": lambda: dist.scatter(receive[:part], list(send.chunk(ranks)) if rank == 0 else None),
    }[name]


def all_reduce_by_hand(tensor):
    host = tensor.cpu()
    dist.all_reduce(host)
    tensor.copy_(host)


def timed(call, repetitions):
    """Seconds, the median of the repetitions of the slower rank; all ranks begin together."""
    times = []
    for repetition in range(repetitions + 2):
        dist.barrier()
        begin = time.perf_counter()
        call()
        torch.accelerator.synchronize()
        if repetition >= 2:
            times.append(time.perf_counter() - begin)
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return statistics.median(slowest.tolist())


def rank_main(rank, arguments, port):
    if arguments.without_plugin:
        from hccl_like import _plugins

        _plugins.register = lambda extension: None
    torch.set_num_threads(1)
    if arguments.pin:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    store = dist.TCPStore("127.0.0.1", port, arguments.ranks, is_master=rank == 0)
    dist.init_process_group("hccl-like", store=store, rank=rank, world_size=arguments.ranks)
    torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
    count = arguments.size // 4
    device = torch.accelerator.current_accelerator()
    pinned = arguments.pinned and torch.empty(1).pin_memory().is_pinned()
    hosts = [torch.zeros(count, pin_memory=pinned) for _ in range(2)]
    there = [torch.zeros(count, device=device) for _ in range(2)]
    rows = []
    for name in arguments.collectives:
        copies_in = copies_out = count
        if name in ("reduce_scatter", "scatter"):
            copies_out //= arguments.ranks
        if name in ("all_gather", "gather"):
            copies_in //= arguments.ranks
        out = timed(lambda: hosts[0][:copies_in].copy_(there[0][:copies_in]), arguments.repetitions)
        back = timed(lambda: there[0][:copies_out].copy_(hosts[0][:copies_out]), arguments.repetitions)
        network = timed(calls(name, *hosts, arguments.ranks), arguments.repetitions)
        staged = timed(calls(name, *there, arguments.ranks), arguments.repetitions)
        by_hand = timed(lambda: all_reduce_by_hand(there[0]), arguments.repetitions) if name == "all_reduce" else None
        rows.append((name, out, back, network, staged, by_hand))
    if rank == 0:
        report(arguments, rows)
    dist.destroy_process_group()


def report(arguments, rows):
    def speed(seconds):
        return f"{arguments.size / seconds / 1e9:8.2f}"

    print(f"# {arguments.ranks} ranks, {arguments.size} bytes, GB/s (size / time), median of {arguments.repetitions}")
    print("# collective    from device  to device  network   staged   of the slowest   of all one after the other   of .cpu() and copy_()")
    for name, out, back, network, staged, by_hand in rows:
        slowest, together = max(out, back, network), out + back + network
        print(
            f"  {name:14}  {speed(out)}   {speed(back)} {speed(network)} {speed(staged)}"
            f"          {slowest / staged:6.0%}   {together / staged:10.0%}" + (f"   {by_hand / staged:26.0%}" if by_hand else "")
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "collectives", nargs="*", type=collective, default=["all_reduce"], metavar="collective", help=", ".join(COLLECTIVES)
    )
    parser.add_argument("--size", type=size_of, default="64M", help="bytes of the larger buffer of a rank")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--copy-bandwidth", type=size_of, help="bytes a second of a simulated device's bus, each way")
    parser.add_argument("--with-plugin", dest="without_plugin", action="store_false", help="use the device's plugin")
    parser.add_argument("--pageable", dest="pinned", action="store_false", help="compare with ordinary host memory")
    parser.add_argument("--pin", action="store_true", help="tie rank r to core r")
    arguments = parser.parse_args()
    if arguments.copy_bandwidth:
        os.environ["TORCH_SIM_HOST_GBPS"] = str(arguments.copy_bandwidth / 1e9)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    multiprocessing.spawn(rank_main, (arguments, port), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()

"""How long a job takes to start, and what it holds then: hccl-like beside another backend, many ranks on this machine.

    python bench/startup.py --ranks 64 --backends hccl-like gloo

A rank has started when its first barrier is over. Processes are forked, so that the time to import torch does not count. That import
loads gloo; hccl-like's library is loaded with the first group, unless ``--loaded`` loads it before the fork, too.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import time
from datetime import timedelta

import torch.distributed as dist

GAVE_UP = 120


def measure(backend: str, ranks: int) -> dict:
    """Seconds from the first rank's beginning to the last one's first barrier; descriptors, threads and memory of the ranks."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2 * ranks)
    children = []
    begin = time.monotonic()
    for rank in range(ranks):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            _rank(backend, rank, ranks, listener, write_end)
        os.close(write_end)
        children.append((pid, read_end))
    listener.close()
    reports = []
    for pid, read_end in children:
        with os.fdopen(read_end) as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        reports.append(json.loads(text) if text else None)
    if None in reports:
        raise RuntimeError(f"{backend}: {reports.count(None)} of {ranks} ranks did not start")
    return {
        "backend": backend,
        "ranks": ranks,
        "seconds": max(report["at"] for report in reports) - begin,
        **{what: statistics.median(report[what] for report in reports) for what in ("descriptors", "threads", "kilobytes")},
    }


def _rank(backend: str, rank: int, ranks: int, listener, answer: int) -> None:
    status = 1
    try:
        address, port = listener.getsockname()
        serves = {"is_master": True, "master_listen_fd": listener.detach()} if rank == 0 else {"is_master": False}
        if rank:
            listener.close()
        store = dist.TCPStore(address, port, wait_for_workers=False, **serves)
        before = _held()  # the store's are not the backend's
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=GAVE_UP))
        dist.barrier()
        at = time.monotonic()
        held = {what: now - then for (what, now), then in zip(_held().items(), before.values())}
        with os.fdopen(answer, "w") as out:
            json.dump({"at": at, **held}, out)
        dist.barrier()
        dist.destroy_process_group()
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)


def _held() -> dict:
    with open("/proc/self/status") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")), "kilobytes": resident}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--backends", nargs="+", default=["hccl-like", "gloo"])
    parser.add_argument("--rounds", type=int, default=3, help="the backends take turns; the median is shown (%(default)s)")
    parser.add_argument("--loaded", action="store_true", help="load hccl-like's library before the ranks are forked")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.loaded:
        from hccl_like import _extension

        _extension.load()
    results = {backend: [] for backend in asked.backends}
    for _ in range(asked.rounds):
        for backend in asked.backends:
            results[backend].append(measure(backend, asked.ranks))
    medians = [
        {**rounds[0], **{what: statistics.median(one[what] for one in rounds) for what in ("seconds", "descriptors", "threads", "kilobytes")}}
        for rounds in results.values()
    ]
    if asked.json:
        print(json.dumps(medians))
        return
    print(f"{'backend':<12}{'ranks':>6}{'seconds':>9}{'descriptors':>13}{'threads':>9}{'KiB':>9}   a rank, over what it had before")
    for one in medians:
        print(f"{one['backend']:<12}{one['ranks']:>6}{one['seconds']:>9.2f}{one['descriptors']:>13g}{one['threads']:>9g}{one['kilobytes']:>9g}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""torch_serve.py FOLDER RANK RANKS BACKEND [DEVICE]: measures a backend of torch.distributed (see serve.h)."""

import os
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from hccl_like.bench.collectives import COLLECTIVES, Case
from hccl_like.bench.run import pick_device
from hccl_like.bench.shared_barrier import SharedBarrier
from hccl_like.bench.types import type_named


class Row:
    def __init__(self, words: list[str], rank: int, ranks: int, device: torch.device, checked: bool):
        name, kind, size, self.warmup, self.iterations, self.batch = words[:2] + [int(word) for word in words[2:]]
        self.collective = COLLECTIVES[name]
        kind = type_named(kind)
        form = "in_place" if name in ("all_reduce", "broadcast") else "out_of_place"
        count = self.collective.count(size // kind.dtype.itemsize, ranks)
        self.case = Case(rank, ranks, count, kind, "sum", 0, device)
        self.send, self.receive = self.collective.buffers(self.case, form)
        self.device, self.checked = device, checked

    def rewrite(self) -> None:
        if self.receive is not self.send:
            self.receive.zero_()
        self.send.fill_(1)
        self._settle()

    def _settle(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def operate(self) -> None:
        if self.collective.name == "all_reduce":
            dist.all_reduce(self.receive)  # as a training script calls it, without a work to wait for
        else:
            for work in self.collective.issue(self.case, self.send, self.receive, dist.group.WORLD):
                work.wait()
        self._settle()

    def count_wrong(self) -> int:
        """After one operation on ones."""
        name = self.collective.name
        if name == "barrier" or not self.checked:
            return 0
        expected = self.case.ranks if self.collective.reduces else 1
        return int((self.receive != expected).sum())

    def measure(self, barrier: SharedBarrier) -> str:
        times, wrong = [], 0
        for at in range(-1 - self.warmup, self.iterations):
            self.rewrite()
            barrier.wait()
            begin = time.perf_counter_ns()
            self.operate()
            for _ in range(1, self.batch):
                self.operate()
            took = (time.perf_counter_ns() - begin) / 1000 / self.batch
            if at >= 0:
                times.append(took)
            elif at == -1 - self.warmup and self.batch == 1:
                wrong = self.count_wrong()
        times.sort()
        p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
        return f"ok {statistics.median(times)} {times[0]} {p99} {wrong}"


def main(folder: Path, rank: int, ranks: int, backend: str, kind: str = "cpu") -> None:
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        store = FakeStore()
    else:
        store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    device = pick_device(kind)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    barrier = SharedBarrier(folder / "visits", rank, ranks)
    with open(folder / f"in.{rank}") as requests, open(folder / f"out.{rank}", "w") as answers:
        print(f"pid {os.getpid()}", file=answers, flush=True)
        for line in requests:
            if line.strip() == "quit":
                break
            try:
                answer = Row(line.split(), rank, ranks, device, backend != "fake").measure(barrier)
            except (RuntimeError, ValueError, NotImplementedError) as error:
                answer = "no " + str(error).splitlines()[0]
            print(answer, file=answers, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])

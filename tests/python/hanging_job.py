"""A rank of jobs.py: hanging_job.py FOLDER ILLNESS."""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer


def loads_data(folder):
    if (parent := os.getpid()) and os.fork() == 0:  # a worker, with the rank's environment
        while os.getppid() == parent:
            time.sleep(0.02)
        os._exit(0)
    while not (folder / "over").exists():
        time.sleep(0.02)


class Slow(torch.utils.data.Dataset):
    """Whose first item takes as long as the test."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        rank = os.getppid()
        while os.getppid() == rank:
            time.sleep(0.02)
        return index


def main(folder, illness):
    if path := os.environ.get("TORCH_WORKER_SERVER_SOCKET"):
        server = _WorkerServer(path)  # noqa: F841
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("hccl-like", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timedelta(seconds=300))
    dist.all_reduce(torch.ones(3))
    dist.broadcast(torch.ones(5), 0)
    (folder / f"ready{rank}").touch()
    while illness in ("none", "slow", "busy"):
        dist.all_reduce(torch.ones(3))
        if illness == "busy":
            sum(range(200_000))
        else:
            time.sleep(0.02 if illness == "slow" and rank == size - 1 else 0.001)
    if illness == "loader" and rank == size - 1:
        next(iter(torch.utils.data.DataLoader(Slow(), num_workers=1)))
    if rank == size - 1:
        loads_data(folder)
    dist.all_reduce(torch.ones(7))


main(Path(sys.argv[1]), sys.argv[2])

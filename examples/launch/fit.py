#!/usr/bin/env python3
"""Fits a line on all ranks with DistributedDataParallel, whatever started them: the smallest program to try a launcher with.

torchrun --nproc-per-node=2 fit.py; mpirun -n 2 python fit.py --init-method mpi://; srun -n 2 python fit.py --init-method slurm://
"""

import argparse
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def fit(device: str | torch.device = "cpu", steps: int = 200) -> float:
    """Fits y = 3 x - 1 in the process group that there is; the loss of the last step, which is the same on all ranks."""
    torch.manual_seed(dist.get_rank())  # every rank sees other points
    model = DistributedDataParallel(nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(steps):
        points = torch.rand(64, 1).to(device)
        loss = nn.functional.mse_loss(model(points), 3 * points - 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    worst = loss.detach().clone()
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return worst.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init-method", default="env://", help="env:// (torchrun), mpi:// or slurm:// (env://)")
    parser.add_argument("--device", default="cpu", help="cpu, or your accelerator's name (cpu)")
    args = parser.parse_args()

    dist.init_process_group("hccl-like", init_method=args.init_method)
    loss = fit(args.device)
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    if dist.get_rank() == 0:
        print(f"fitted on {dist.get_world_size()} ranks, largest loss {loss:.1e}: {', '.join(hosts)}", flush=True)
    dist.destroy_process_group()
    if loss > 1e-3:
        raise SystemExit(f"the fit failed: loss {loss}")


if __name__ == "__main__":
    main()

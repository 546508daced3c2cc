"""One model on several ranks: not at all, data-parallel, or sharded."""

import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class Ranks:
    """Who this process is among how many."""

    rank: int
    world: int
    device: torch.device

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """`value` summed over the ranks, in place; not read back, so a device need not be waited for."""
        if self.world > 1:
            dist.all_reduce(value)
        return value


def pick_device(kind: str, local_rank: int) -> torch.device:
    """`cpu`, or one device of an accelerator that PyTorch knows, shared out over the ranks of this host."""
    if kind == "cpu":
        return torch.device("cpu")
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        raise SystemExit(f"no device '{kind}' here: install its package (for sim: pip install --no-build-isolation "
                         "./simulator) or use --device cpu")
    device = torch.device(kind, local_rank % module.device_count())
    torch.accelerator.set_device_index(device.index)
    return device


def start(parallel: str, backend: str, kind: str) -> Ranks:
    """Joins the process group that torchrun prepared; `none` stays alone."""
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    # The ranks of one host share its cores; more threads than cores make everyone wait for everyone.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks_here))
    if parallel == "none":
        if ranks_here > 1:
            raise SystemExit("--parallel none trains in one process: start it without torchrun")
        return Ranks(0, 1, pick_device(kind, 0))
    device = pick_device(kind, local_rank)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        os.environ.setdefault(name, value)  # so that `python train_digits.py` works without torchrun, too
    if ":" not in backend and not dist.is_backend_available(backend):
        raise SystemExit(f"torch knows no backend '{backend}': install its package in this environment (for hccl-like: "
                         "pip install --no-build-isolation .), or name another with --backend")
    dist.init_process_group(backend)
    return Ranks(dist.get_rank(), dist.get_world_size(), device)


def finish(wrong: list[str]) -> int:
    """Leaves the process group, prints what is wrong with the result, and returns the exit code."""
    if dist.is_initialized():
        dist.destroy_process_group()
    for complaint in wrong:
        print(complaint, file=sys.stderr)
    return 1 if wrong else 0


def wrap(model: nn.Module, parallel: str, ranks: Ranks, compression: str | None = None) -> nn.Module:
    """The model as the ranks train it; its parameters already lie on the device and are equal everywhere."""
    if parallel == "ddp":
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        if compression:
            from hccl_like import hooks

            model.register_comm_hook(hooks.CompressionState(compression), hooks.compression_hook)
        return model
    if parallel == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(ranks.device.type, (ranks.world,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model

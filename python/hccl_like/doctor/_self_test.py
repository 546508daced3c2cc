"""Two ranks on this host, and calls between them."""

from __future__ import annotations

import os
import re
import sys

from typing import TYPE_CHECKING

from hccl_like import _local_ranks
from hccl_like.doctor._findings import Findings

if TYPE_CHECKING:
    import torch

_LIMIT = 90.0
_RANKS = 2
# Odd: more than what goes over the board at once, and on a device several slices, which its plugin copies, not torch.
_COUNT = 100_003
_COUNT_OF_SLICES = 2_000_003


def examine(device: str, findings: Findings) -> None:
    """`device` is cpu, or a device that is tried after it."""
    failed = _local_ranks.run("hccl_like.doctor._self_test", [device], _RANKS, _LIMIT, output := _local_ranks.Output())
    if failed is None:
        findings.add(f"self test with {_RANKS} ranks", [line.split("\t") for line in output.text.splitlines() if "\t" in line])
        return
    findings.problems.append(f"the self test failed: rank {failed.rank} {failed.why}: {_cause(failed.told)}")


def _cause(told: str) -> str:
    """The error that a rank ended with: the last line that is not one of our log, which goes on after it."""
    lines = [line for line in told.strip().splitlines() if not re.match(r"\S+:\d+ hccl-like [A-Z]+ ", line)]
    return re.sub(r"^\[rank\d+\]: ", "", lines[-1]) if lines else "it said nothing"


def _rank(kind: str) -> None:
    import torch
    import torch.distributed as dist

    import hccl_like
    from hccl_like import _accelerator

    os.environ.setdefault("HCCL_LIKE_FLIGHT_DUMP", "0")
    rank, ranks = _local_ranks.join()
    devices = [torch.device("cpu")]
    if kind != "cpu":
        devices.append(torch.device(kind, rank % _accelerator.device_count(kind)))
        torch.accelerator.set_device_index(devices[-1].index)
    for device in devices:
        for count in (_COUNT,) if device.type == "cpu" else (_COUNT, _COUNT_OF_SLICES):
            tensor = torch.arange(count, dtype=torch.float32).add_(rank).to(device)
            dist.all_reduce(tensor)
            expected = torch.arange(count, dtype=torch.float32) * ranks + sum(range(ranks))
            _check(tensor, expected, f"an all_reduce of {count} elements on {device}")
        received = torch.empty_like(tensor)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]):
            work.wait()
        _check(received, expected, f"a message of {tensor.numel()} elements on {device}")
        if device.type != "cpu":  # streams may have made the calls above; none are asked where an algorithm is named
            slices = dist.new_group(pg_options=hccl_like.Options(algorithms="all_reduce:direct"))
            dist.all_reduce(received, dist.ReduceOp.MAX, group=slices)
            _check(received, expected, f"an all_reduce of {tensor.numel()} elements through the host on {device}")
        if rank == 0:
            over = ", ".join(_local_ranks.paths(device)) or "memory that both ranks see"
            print(f"all_reduce on {device.type}\tright, over {over}", flush=True)
    dist.destroy_process_group()


def _check(tensor: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    import torch
    import torch.distributed as dist

    if not torch.equal(tensor.cpu(), expected):
        dist.barrier()  # in stream order the next call tells why a call failed
        raise SystemExit(f"{what} gave a wrong result")


if __name__ == "__main__":
    _rank(sys.argv[1])

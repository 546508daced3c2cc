"""Two ranks on this host, and an all_reduce between them."""

from __future__ import annotations

import sys

from hccl_like import _local_ranks
from hccl_like.doctor._findings import Findings

_LIMIT = 90.0
_RANKS = 2
# Odd, and more than what goes over the board at once.
_COUNT = 100_003


def examine(device: str, findings: Findings) -> None:
    """`device` is cpu, or a device that is tried after it."""
    failed = _local_ranks.run("hccl_like.doctor._self_test", [device], _RANKS, _LIMIT, output := _local_ranks.Output())
    if failed is None:
        findings.add(f"self test with {_RANKS} ranks", [line.split("\t") for line in output.text.splitlines() if "\t" in line])
        return
    last = (failed.told.strip().splitlines() or ["it said nothing"])[-1]
    findings.problems.append(f"the self test failed: rank {failed.rank} {failed.why}: {last}")


def _rank(kind: str) -> None:
    import torch
    import torch.distributed as dist

    from hccl_like import _accelerator

    rank, ranks = _local_ranks.join()
    devices = [torch.device("cpu")]
    if kind != "cpu":
        devices.append(torch.device(kind, rank % _accelerator.device_count(kind)))
        torch.accelerator.set_device_index(devices[-1].index)
    for device in devices:
        tensor = torch.arange(_COUNT, dtype=torch.float32).add_(rank).to(device)
        dist.all_reduce(tensor)
        expected = torch.arange(_COUNT, dtype=torch.float32) * ranks + sum(range(ranks))
        if not torch.equal(tensor.cpu(), expected):
            raise SystemExit(f"an all_reduce of {_COUNT} elements on {device} gave a wrong result")
        if rank == 0:
            over = ", ".join(_local_ranks.paths(device)) or "memory that both ranks see"
            print(f"all_reduce on {device.type}\tright, over {over}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(sys.argv[1])

"""Communication hooks for DistributedDataParallel that send gradients between hosts in fewer bytes (docs/compression.md).

    state = hccl_like.hooks.CompressionState("mx8")
    model.register_comm_hook(state, hccl_like.hooks.compression_hook)

Only the gradients are compressed: the state has a process group of its own, whatever the model's group does.
"""

import collections
import dataclasses
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["CompressionState", "compression_hook"]

_BLOCK = 32  # elements with one scale
_LEAST = 64 << 10  # bytes, for each rank of the fullest host, of the smallest call that is compressed (compressed_calls.h)


@dataclasses.dataclass
class _Residuals:
    """What rounding took away from one bucket so far: from this rank's gradients, and from its share of the means."""

    gradients: torch.Tensor
    means: torch.Tensor


class CompressionState:
    """The state of :func:`compression_hook`. All ranks of ``group`` make it at the same point, after the group, because it makes a group.

    ``compression``: "mx8", "mx4" or "bf16". With ``error_feedback``, what rounding takes away from a gradient is added to the next one,
    so that it is late and not lost; that needs a copy of the gradients in memory.
    """

    def __init__(self, compression: str = "mx8", *, group: dist.ProcessGroup | None = None, error_feedback: bool = True) -> None:
        from hccl_like import _extension

        extension = _extension.load()
        self.compression = compression
        self.error_feedback = error_feedback
        self.group: Any = dist.new_group(
            dist.get_process_group_ranks(group if group is not None else dist.group.WORLD),
            backend="hccl-like",
            pg_options=extension.Options(compression=compression),
            use_local_synchronization=True,
        )
        self.size = dist.get_world_size(self.group)
        self._round_on_host = extension._round_to_compression
        backend = self.group._get_backend(torch.device("cpu"))
        ranks_of_hosts = collections.Counter(backend._info()["layout"])
        self.hosts = len(ranks_of_hosts)
        self.least_bytes = _LEAST * max(ranks_of_hosts.values())
        self._residuals: dict[int, _Residuals] = {}

    def round_(self, floats: torch.Tensor) -> None:
        """Replaces the numbers by those that other hosts would get."""
        on_host = floats.cpu()
        self._round_on_host(on_host, self.compression)
        if on_host is not floats:
            floats.copy_(on_host)

    def residuals(self, bucket: int, gradients: torch.Tensor, share: int) -> _Residuals:
        """Those of a bucket; zeros at first, and after DDP has filled its buckets anew."""
        known = self._residuals.get(bucket)
        if known is None or known.means.numel() != share or known.gradients.device != gradients.device:
            known = _Residuals(gradients.new_zeros(share * self.size), gradients.new_zeros(share))
            self._residuals[bucket] = known
        return known

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a hook's state holds a process group, which cannot be saved; make a new one when the job goes on")


def compression_hook(state: CompressionState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of float32 gradients over the ranks of the state's group."""
    gradients = bucket.buffer()
    if gradients.dtype != torch.float32:
        raise TypeError(
            f"gradients of {str(gradients.dtype).removeprefix('torch.')} are not compressed; keep parameters in float32 "
            "(torch.autocast computes in less), or use torch's fp16_compress_hook"
        )
    small = gradients.numel() * gradients.element_size() < state.least_bytes
    if small or state.hosts == 1 or not state.error_feedback:
        work = dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=state.group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])
    return _with_error_feedback(state, bucket.index(), gradients)


# Both roundings are made here, where their errors are known. The collectives find numbers that are rounded already, in blocks
# that begin at the same elements, and pass them on as they are.
def _with_error_feedback(state: CompressionState, bucket: int, gradients: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    blocks = -(-gradients.numel() // (_BLOCK * state.size))
    residuals = state.residuals(bucket, gradients, blocks * _BLOCK)
    residuals.gradients[: gradients.numel()] += gradients
    sent = _rounded(state, residuals.gradients)
    mean = torch.empty_like(residuals.means)
    dist.reduce_scatter_tensor(mean, sent, op=dist.ReduceOp.AVG, group=state.group)
    residuals.means += mean
    shared = _rounded(state, residuals.means)
    work: Any = dist.all_gather_into_tensor(sent, shared, group=state.group, async_op=True)
    return work.get_future().then(lambda _: gradients.copy_(sent[: gradients.numel()]))


def _rounded(state: CompressionState, total: torch.Tensor) -> torch.Tensor:
    """The total as other hosts get it; leaves the rest in the total. An overflow, which a gradient scaler looks for, leaves none."""
    rounded = total.clone()
    state.round_(rounded)
    total -= rounded
    torch.nan_to_num_(total, nan=0.0, posinf=0.0, neginf=0.0)
    return rounded

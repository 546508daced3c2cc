"""hccl-like in torchft: a process group that torchft's Manager configures anew whenever replicas come and go.

    from process_group import ProcessGroupHcclLike, on_host
    manager = torchft.Manager(
        pg=ProcessGroupHcclLike(timeout=timedelta(seconds=30)),
        state_dict=lambda: on_host({"model": model.state_dict(), "optimizer": optimizer.state_dict()}),
        ...)
"""

import contextlib
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType
from torch.utils import _pytree as pytree
from torchft.process_group import ProcessGroupWrapper

from hccl_like import _registration


def on_host(state):
    """The state, with every tensor copied to the host: for the Manager's ``state_dict``.

    torchft copies tensors of CUDA and XPU itself, before it makes the next group. Those of other devices its HTTP thread reads later,
    behind an all_reduce that waits for the replica which waits for that very state: a deadlock.
    """
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu(), state)


class _AllReduce(dist._Work):
    """A failure makes wait() return False: torchft's hook for DDP takes no exception there. The future and errored() tell it."""

    def __init__(self, work):
        super().__init__()
        self._work = work

    def wait(self, *timeout):
        try:
            return self._work.wait(*timeout)
        except dist.DistBackendError:
            return False

    def synchronize(self):
        self._work.synchronize()

    def block_current_stream(self):
        self._work.block_current_stream()

    def get_future(self):
        return self._work.get_future()


class ProcessGroupHcclLike(ProcessGroupWrapper):
    """torchft's wrapper around a process group of hccl-like, for CPU tensors and for those of the accelerator.

    `timeout` is that of a call. A call that fails raises in wait(), but for allreduce(), or, on a device that keeps the order of
    streams, in the next call; errored() tells the first failure of the group there is.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        super().__init__(timeout)
        self._backend = None

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        import hccl_like

        name = f"torchft_quorum_{self._quorum_id}_group_{self._group_rank}"
        ranks = self._global_ranks or list(range(world_size))
        backend = _registration.make_backend(store, rank, world_size, hccl_like.Options(), self._timeout, name, ranks)
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        devices = {"cpu"}
        if torch.accelerator.is_available():
            devices.add(torch.accelerator.current_accelerator().type)
        for device in sorted(devices):
            group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.CUSTOM, backend)
        self._backend = backend
        return group

    def allreduce(self, tensors, opts):
        return _AllReduce(super().allreduce(tensors, opts))

    def abort(self, errored: bool = True) -> None:
        """Every call that runs, here and on the other replicas, fails within a moment."""
        if self._backend is not None:
            self._backend.abort()
        self._leave()

    def shutdown(self) -> None:
        self._leave()

    def _leave(self) -> None:
        backend, self._backend, self._pg = self._backend, None, None
        if backend is not None:
            backend.shutdown()

    def errored(self) -> Exception | None:
        """What happened to the present group, if anything did. Waits for what is queued on the accelerator.

        torchft asks before it commits a step, after a synchronize() of its own that knows CUDA and XPU only.
        """
        if self._backend is None:
            return None
        if torch.accelerator.is_available():
            with contextlib.suppress(dist.DistBackendError):  # get_error() tells it, too
                torch.accelerator.synchronize()
        state = self._backend.get_error()
        if state == ErrorType.SUCCESS:
            return None
        return RuntimeError(self._backend._info().get("failure") or f"a call on tensors of the accelerator failed: {state.name}")

    def getBackendName(self) -> str:
        return "torchft-hccl-like"

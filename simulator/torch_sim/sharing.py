"""Tensors sent to another process through torch.multiprocessing: refused by name. torch shares the memory of the host and of
CUDA only, and would say that it lacks a function of the host's."""

import torch
from torch.multiprocessing import reductions


def _reduce_storage(storage):
    if storage.device.type == "sim":
        raise RuntimeError(
            "sim: a tensor of this device cannot be sent through torch.multiprocessing; send tensor.cpu(), or let a "
            "process group move it"
        )
    return reductions.reduce_storage(storage)


def install() -> None:
    reductions.reduction.register(torch.UntypedStorage, _reduce_storage)

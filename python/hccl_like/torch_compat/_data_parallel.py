"""DistributedDataParallel."""

from __future__ import annotations

import functools
import inspect
import os

from hccl_like._registration import NAME
from hccl_like.torch_compat import _ours


def bf16_hook(module) -> None:
    """torch checks, by the hook's name, for the NCCL or XCCL it takes to add bfloat16; this backend adds it everywhere."""
    ddp = module.DistributedDataParallel
    original = ddp._check_comm_hook

    @functools.wraps(original)
    def _check_comm_hook(self, hook):
        if callable(hook) and _ours.backends(self.process_group):
            hook = _of_another_name(hook)
        return original(self, hook)

    ddp._check_comm_hook = _check_comm_hook


def _of_another_name(hook):
    """Something to check in the hook's stead: the same signature, which is what the other checks are about."""

    def checked(*_):
        raise AssertionError("a stand-in for its signature is not called")

    checked.__signature__ = inspect.signature(hook)
    return checked


def logged_name(module) -> None:
    """The logging data have the backend's name where C++ knows the type only, which is "custom" for every plugin."""
    ddp = module.DistributedDataParallel
    original = ddp._get_ddp_logging_data

    @functools.wraps(original)
    def _get_ddp_logging_data(self):
        data = original(self)
        if data.get("backend_name") == "custom" and _ours.backends(self.process_group):
            data["backend_name"] = NAME
        return data

    ddp._get_ddp_logging_data = _get_ddp_logging_data


def buckets(module) -> None:
    """torch leaves buckets in ordinary memory unless told otherwise, for fear of a second pool of device memory beside its own
    (pytorch/pytorch#147663). Here it is host memory that peers map, and accelerators' buckets come from torch's allocator."""
    ddp = module.DistributedDataParallel
    original = ddp._ddp_init_helper

    @functools.wraps(original)
    def _ddp_init_helper(self, *args, **kwargs):
        if _ours.backends(self.process_group):
            # Read now and when buckets are made anew, so it stays.
            os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
        return original(self, *args, **kwargs)

    ddp._ddp_init_helper = _ddp_init_helper

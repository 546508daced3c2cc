"""torchtitan: ``import hccl_like.integrations.torchtitan``, before or after ``import torchtitan``.

torchtitan finds the accelerator and its backend itself. It compiles its attention: for a device that
Inductor has no code generator for, this module takes the same functions uncompiled. It also gives
PyTorch before 2.14 the ``set_timeout`` that torchtitan calls.
"""

from __future__ import annotations

import importlib

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from hccl_like.integrations import _apply


def _attention(module) -> None:
    name = _apply.accelerator()
    if name is None:
        return
    flex = importlib.import_module("torch.nn.attention.flex_attention")

    @_apply.wrap(flex, "_validate_device")
    def validate_device(original, query, key, value):
        if query.device.type != name:
            original(query, key, value)

    inductor = importlib.import_module("torch._inductor.codegen.common")
    if inductor.get_scheduling_for_device(name) is None:
        module.FlexAttention._compiled_flex_attn = staticmethod(module.flex_attention)
        module._compiled_create_block_mask = module.create_block_mask


def _timeout(module) -> None:
    if not hasattr(dist, "set_timeout"):
        dist.set_timeout = lambda timeout, group=None: c10d._set_pg_timeout(timeout, group)


_apply.mend(
    "torchtitan",
    "0.3.0",
    {
        "torchtitan.models.common.attention": _attention,
        "torchtitan.distributed.utils": _timeout,
    },
)

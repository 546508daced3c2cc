"""A model of odd sizes, data that differ from rank to rank, and a step by one process that has them all."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import Linear
from torch.testing._internal.common_fsdp import MLP, DoubleLinear, check_sharded_parity

from ._base import FsdpTest

WIDTH = 13  # no number of ranks divides it
sgd = partial(torch.optim.SGD, lr=0.125, momentum=0.5)


def sharded(module, mesh, parts=(MLP, DoubleLinear, Linear), **options):
    """`fully_shard` for each part and then for the whole."""
    for part in module.children():
        if isinstance(part, parts):
            fully_shard(part, mesh=mesh, **options)
    return fully_shard(module, mesh=mesh, **options)


class Fsdp2Test(FsdpTest):
    def plain(self, count: int = 3):
        torch.manual_seed(3)
        return nn.Sequential(*(MLP(WIDTH, device="cpu", dim_multiplier=3) for _ in range(count))).to(self.device)

    def batch(self, step: int, rank: int, width: int = WIDTH):
        generator = torch.Generator().manual_seed(100 * step + rank)
        return torch.randn(4, width, generator=generator).to(self.device)

    def whole_step(self, plain, step: int, loss=lambda out: out.square().mean()):
        """The gradients that all ranks' data give; the whole model is on every rank."""
        for rank in range(self.world_size):
            (loss(plain(self.batch(step, rank))) / self.world_size).backward()

    def trains_alike(self, plain, wrapped, steps: int = 3, make=sgd, check=True):
        one, other = make(plain.parameters()), make(wrapped.parameters())
        for step in range(steps):
            one.zero_grad()
            other.zero_grad()
            wrapped(self.batch(step, self.rank)).square().mean().backward()
            self.whole_step(plain, step)
            if check:
                check_sharded_parity(self, plain, wrapped)
            one.step()
            other.step()
        for ours, theirs in zip(wrapped.parameters(), plain.parameters()):
            self.assertEqual(ours.full_tensor() if isinstance(ours, DTensor) else ours, theirs, rtol=1e-4, atol=1e-5)

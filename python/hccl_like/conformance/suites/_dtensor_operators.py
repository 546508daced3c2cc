"""Operators on every placement of their arguments, against the same operator on whole tensors."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn import functional as F
from torch.testing._internal.distributed._tensor.common_dtensor import DTensorConverter, with_comms

from ._base import DTensorTest


class Operators(DTensorTest):
    def value(self, *shape):
        generator = torch.Generator().manual_seed(sum(shape))
        return torch.randn(*shape, generator=generator).to(self.device)

    def holds(self, function, *tensors, mesh=None, **tolerance):
        """`function` gives the same whichever way the arguments are cut up: torch's converter goes through them all."""
        expected = function(*tensors)
        converter = DTensorConverter(mesh or self.mesh(), tensors, {})
        for arguments, _ in converter:
            self.assertTrue(converter.successful())
            got = function(*arguments)
            self.assertEqual(got.full_tensor(), expected, **(tolerance or {"rtol": 1e-4, "atol": 1e-5}))

    @with_comms
    def test_elementwise(self):
        for function in (torch.exp, torch.relu, torch.sigmoid, torch.neg, lambda t: 2 * t + 1, lambda t: t.to(torch.float64),
                         lambda t: t.clamp(-0.5, 0.5), F.gelu, F.silu):  # fmt: skip
            self.holds(function, self.value(8, 5))
        for function in (torch.add, torch.mul, torch.sub, torch.maximum, lambda a, b: a > b, torch.atan2):
            self.holds(function, self.value(8, 5), self.value(8, 5))
        self.holds(torch.add, self.value(8, 5), self.value(5))
        self.holds(torch.where, self.value(4, 5) > 0, self.value(4, 5), self.value(4, 5))

    @with_comms
    def test_products(self):
        self.holds(torch.mm, self.value(8, 12), self.value(12, 4))
        self.holds(torch.bmm, self.value(4, 3, 8), self.value(4, 8, 5))
        self.holds(torch.addmm, self.value(4), self.value(8, 12), self.value(12, 4))
        self.holds(F.linear, self.value(8, 12), self.value(4, 12), self.value(4))
        self.holds(torch.matmul, self.value(2, 4, 8), self.value(8, 6))
        self.holds(torch.t, self.value(8, 3))

    @with_comms
    def test_sums_and_other_reductions(self):
        for function in (torch.sum, torch.mean, torch.amax, torch.amin):
            for side in ((), (0,), (1,)):
                self.holds(lambda t, f=function, s=side: f(t, dim=s[0]) if s else f(t), self.value(8, 7))
        self.holds(lambda t: torch.sum(t, dim=(0, 2), keepdim=True), self.value(4, 3, 8))
        self.holds(torch.prod, self.value(2, 3))
        self.holds(lambda t: (t > 0).any(), self.value(8, 3))
        self.holds(lambda t: (t > -9).all(), self.value(8, 3))
        self.holds(lambda t: torch.argmax(t, dim=1), self.value(8, 3))
        self.holds(lambda t: torch.var(t, dim=1), self.value(8, 6))
        for kind in (1, 2, float("inf")):
            self.holds(lambda t, k=kind: torch.linalg.vector_norm(t, k), self.value(8, 3))

    @with_comms
    def test_shapes(self):
        for function in (
            lambda t: t.view(8, 12), lambda t: t.reshape(4, 24), lambda t: t.permute(2, 0, 1), lambda t: t.transpose(0, 2),
            lambda t: t.unsqueeze(1), lambda t: t.flatten(0, 1), lambda t: t[1:3], lambda t: t.expand(2, 4, 8, 3),
            lambda t: torch.stack([t, t]), lambda t: torch.cat([t, t], 1), lambda t: t.repeat(2, 1, 1), lambda t: t.select(0, 1),
        ):  # fmt: skip
            tensor = self.value(4, 8, 3)
            whole = function(tensor)
            for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
                if placement.is_shard() and tensor.shape[placement.dim] % self.world_size:
                    continue
                got = function(distribute_tensor(tensor, self.mesh(), [placement]))
                self.assertEqual(got.full_tensor(), whole)

    @with_comms
    def test_pieces(self):
        tensor = self.value(8, 12)
        for split in (lambda t: t.split(3, 1), lambda t: t.chunk(2, 0), lambda t: t.unbind(0)):
            for placement in (Shard(0), Shard(1), Replicate()):
                if placement == Shard(0) and "unbind" in split.__code__.co_names:
                    continue  # torch unbinds along a side that is not cut
                got = split(distribute_tensor(tensor, self.mesh(), [placement]))
                self.assertEqual([piece.full_tensor() for piece in got], list(split(tensor)))

    @with_comms
    def test_normalisation_and_its_gradients(self):
        for make in (lambda: nn.LayerNorm(12), lambda: nn.RMSNorm(12)):
            plain = make().to(self.device)
            x = self.value(8, 4, 12)
            y = x.clone().requires_grad_()
            plain(y).square().sum().backward()
            for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
                if placement == Shard(2) and isinstance(plain, nn.RMSNorm):
                    continue  # torch normalises over a side that is cut only for LayerNorm
                spread = torch.distributed.tensor.distribute_module(make().to(self.device), self.mesh())
                z = distribute_tensor(x, self.mesh(), [placement]).requires_grad_()
                spread(z).square().sum().backward()
                self.assertEqual(z.grad.full_tensor(), y.grad, rtol=1e-3, atol=1e-4)
                self.assertEqual([p.grad.full_tensor() for p in spread.parameters()], [p.grad for p in plain.parameters()],
                                 rtol=1e-3, atol=1e-4)  # fmt: skip

    @with_comms
    def test_softmax_and_its_gradient(self):
        x = self.value(8, 4, 12)
        for function in (F.softmax, F.log_softmax):
            for dim in (0, 1, -1):
                y = x.clone().requires_grad_()
                (function(y, dim=dim) * x).sum().backward()
                for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
                    z = distribute_tensor(x, self.mesh(), [placement]).requires_grad_()
                    out = function(z, dim=dim)
                    self.assertEqual(out.full_tensor(), function(x, dim=dim))
                    (out * distribute_tensor(x, self.mesh(), [placement])).sum().backward()
                    self.assertEqual(z.grad.full_tensor(), y.grad, rtol=1e-4, atol=1e-5)

    @with_comms
    def test_losses(self):
        x, target = self.value(8, 12), torch.arange(8, device=self.device) % 12
        for kind in ("mean", "sum", "none"):
            for placement in (Shard(0), Replicate()):
                got = F.cross_entropy(distribute_tensor(x, self.mesh(), [placement]),
                                      distribute_tensor(target, self.mesh(), [placement]), reduction=kind)  # fmt: skip
                self.assertEqual(got.full_tensor(), F.cross_entropy(x, target, reduction=kind), rtol=1e-4, atol=1e-5)

    @with_comms
    def test_looking_up_rows(self):
        table = self.value(16, 6)
        keys = torch.tensor([[0, 15, 3], [7, 7, 8]], device=self.device)
        for placement in (Shard(0), Shard(1), Replicate()):
            weight = distribute_tensor(table, self.mesh(), [placement]).requires_grad_()
            where = distribute_tensor(keys, self.mesh(), [Replicate()])
            # A table cut by rows gives sums with a mask, which can be used up once.
            got = F.embedding(where, weight).redistribute(self.mesh(), [Replicate()])
            self.assertEqual(got.full_tensor(), F.embedding(keys, table))
            got.square().sum().backward()
            plain = table.clone().requires_grad_()
            F.embedding(keys, plain).square().sum().backward()
            self.assertEqual(weight.grad.full_tensor(), plain.grad)

    @with_comms
    def test_sorting_and_gathering(self):
        x = self.value(8, 12)
        for placement in (Shard(0), Shard(1), Replicate()):
            spread = distribute_tensor(x, self.mesh(), [placement])
            self.assertEqual(torch.topk(spread, 3, dim=1)[0].full_tensor(), torch.topk(x, 3, dim=1)[0])
            self.assertEqual(torch.sort(spread, dim=1)[0].full_tensor(), torch.sort(x, dim=1)[0])
            where = distribute_tensor(torch.arange(8, device=self.device).view(8, 1), self.mesh(), [Replicate()])
            self.assertEqual(torch.gather(spread, 1, where).full_tensor(), torch.gather(x, 1, where.to_local()))
            self.assertEqual(torch.cumsum(spread, 0).full_tensor(), torch.cumsum(x, 0), rtol=1e-4, atol=1e-5)

    @with_comms
    def test_parts_of_a_sum(self):
        mesh = self.mesh()
        mine = self.value(4, 4) + self.rank
        total = torch.stack([self.value(4, 4) + rank for rank in range(self.world_size)]).sum(0)
        parts = DTensor.from_local(mine, mesh, [Partial()])
        for function in (lambda t: t + t, lambda t: 3 * t, lambda t: t.sum(0), lambda t: t.t(), lambda t: -t, torch.relu):
            self.assertEqual(function(parts).full_tensor(), function(total), rtol=1e-4, atol=1e-4)

    @with_comms
    def test_in_place(self):
        mesh = self.mesh()
        x = self.value(8, 5)
        for placement in (Shard(0), Shard(1), Replicate()):
            one = distribute_tensor(x.clone(), mesh, [placement])
            one.add_(2).mul_(3)
            one[:] = one * 2
            self.assertEqual(one.full_tensor(), (x + 2) * 3 * 2)
            one.zero_()
            self.assertEqual(one.full_tensor(), torch.zeros_like(x))

    @with_comms
    def test_many_at_once(self):
        mesh = self.mesh()
        values = [self.value(8, 5), self.value(3, 4)]
        spread = [distribute_tensor(value, mesh, [Shard(0)]) for value in values]
        self.assertEqual([t.full_tensor() for t in torch._foreach_add(spread, spread)], [2 * value for value in values])
        norm = nn.utils.get_total_norm(spread)
        self.assertEqual(norm.full_tensor(), nn.utils.get_total_norm(values), rtol=1e-5, atol=1e-5)

    @with_comms
    def test_a_sum_is_the_same_on_every_rank(self):
        spread = distribute_tensor(self.value(7, 3), self.mesh(), [Shard(0)])
        got = [None] * self.world_size
        dist.all_gather_object(got, spread.sum().full_tensor().item())
        self.assertEqual(got, [got[0]] * self.world_size)
        self.assertTrue(torch.equal(spread, spread.clone()))

    @with_comms
    def test_optimisers(self):
        mesh = self.mesh()
        for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
            for several in (False, True):
                plain = self.value(8, 5).requires_grad_()
                spread = distribute_tensor(plain.detach().clone(), mesh, [Shard(0)]).requires_grad_()
                one, other = make([plain], lr=0.1, foreach=several), make([spread], lr=0.1, foreach=several)
                for _ in range(2):
                    for tensor, optimiser in ((plain, one), (spread, other)):
                        optimiser.zero_grad()
                        tensor.square().sum().backward()
                        optimiser.step()
                self.assertEqual(spread.full_tensor(), plain, rtol=1e-4, atol=1e-5)

"""Functional collectives, their autograd versions and `torch.distributed.nn`, eager and compiled."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.distributed.nn.functional as dist_nn
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.fx.experimental.proxy_tensor import make_fx

from . import _base
from ._base import GroupTest


class FunctionalTest(GroupTest):
    @property
    def world(self):
        return dist.group.WORLD

    def row(self, rank, length=6):
        return torch.arange(length, dtype=torch.float32, device=self.device) + 10 * rank

    def rows(self, length=6):
        return [self.row(rank, length) for rank in range(self.world_size)]

    def total(self, length=6):
        return torch.stack(self.rows(length)).sum(0)


class Functional(FunctionalTest):
    def test_all_reduce(self):
        everybody = torch.stack(self.rows())
        expected = {"sum": everybody.sum(0), "avg": everybody.mean(0), "max": everybody.amax(0), "min": everybody.amin(0),
                    "product": everybody.prod(0)}  # fmt: skip
        for kind, value in expected.items():
            mine = self.row(self.rank)
            self.assertEqual(fc.all_reduce(mine, kind, self.world) + 0, value)
            self.assertEqual(mine, self.row(self.rank))

    def test_who_takes_part_said_in_every_way(self):
        row = self.mesh()
        square = self.square("a", "b")
        ranks = list(range(self.world_size))
        for group in (self.world, ranks, row, (row, 0)):
            self.assertEqual(fc.all_reduce(self.row(self.rank), "sum", group) + 0, self.total())
        half = self.world_size // 2
        first = self.rank // half * half
        pair = sum(self.row(rank) for rank in range(first, first + half))
        for group in ((square, 1), square["b"], square.get_group("b")):
            self.assertEqual(fc.all_reduce(self.row(self.rank), "sum", group) + 0, pair)

    def test_all_gather(self):
        for dim, joined in ((0, lambda rows: torch.cat(rows, 0)), (1, lambda rows: torch.cat(rows, 1))):
            mine = self.row(self.rank).view(2, 3)
            got = fc.all_gather_tensor(mine, gather_dim=dim, group=self.world)
            self.assertEqual(got + 0, joined([row.view(2, 3) for row in self.rows()]))

    def test_reduce_scatter(self):
        n = self.world_size
        for dim in (0, 1):
            mine = self.row(self.rank, 3 * n * n).view(n, 3 * n)
            expected = self.total(3 * n * n).view(n, 3 * n).chunk(n, dim)[self.rank]
            self.assertEqual(fc.reduce_scatter_tensor(mine, "sum", scatter_dim=dim, group=self.world) + 0, expected)
            mean = fc.reduce_scatter_tensor(mine, "avg", scatter_dim=dim, group=self.world)
            self.assertEqual(mean + 0, expected / n)

    def test_broadcast(self):
        for source in range(self.world_size):
            self.assertEqual(fc.broadcast(self.row(self.rank), source, self.world) + 0, self.row(source))

    def test_all_to_all(self):
        n = self.world_size
        got = fc.all_to_all_single(self.row(self.rank, 2 * n), None, None, self.world)
        self.assertEqual(got + 0, torch.cat([self.row(rank, 2 * n)[2 * self.rank : 2 * self.rank + 2] for rank in range(n)]))

    def test_all_to_all_of_uneven_parts(self):
        n = self.world_size
        send = [self.rank + peer for peer in range(n)]
        got = fc.all_to_all_single(self.row(self.rank, sum(send)), send, send, self.world)
        parts = []
        for rank in range(n):
            sizes = [rank + peer for peer in range(n)]
            parts.append(self.row(rank, sum(sizes)).split(sizes)[self.rank])
        self.assertEqual(got + 0, torch.cat(parts))

    def test_a_permutation(self):
        n = self.world_size
        got = fc.permute_tensor(self.row(self.rank), [(rank + 1) % n for rank in range(n)], self.world)
        self.assertEqual(got + 0, self.row((self.rank - 1) % n))

    def test_several_at_once(self):
        n = self.world_size
        values = [self.row(self.rank, 2 * n), self.row(self.rank, 6 * n).view(2 * n, 3)]
        totals = [self.total(2 * n), self.total(6 * n).view(2 * n, 3)]
        self.assertEqual([t + 0 for t in fc.all_reduce_coalesced(values, "sum", self.world)], totals)
        got = fc.all_gather_into_tensor_coalesced(values, self.world)
        self.assertEqual([t + 0 for t in got], [torch.cat(self.rows(2 * n)), torch.cat([r.view(2 * n, 3) for r in self.rows(6 * n)])])
        got = fc.reduce_scatter_tensor_coalesced(values, "sum", [0, 0], self.world)
        self.assertEqual([t + 0 for t in got], [total.chunk(n)[self.rank] for total in totals])

    def test_types(self):
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.complex64):
            mine = torch.ones(5, device=self.device).to(dtype)
            self.assertEqual(fc.all_reduce(mine, "sum", self.world) + 0, mine * self.world_size)
            self.assertEqual(fc.all_gather_tensor(mine, 0, self.world) + 0, mine.repeat(self.world_size))
        flags = torch.tensor([self.rank == 0, False], device=self.device)
        self.assertEqual(fc.all_reduce(flags, "max", self.world).clone(), torch.tensor([True, False], device=self.device))

    def test_a_result_waits_when_it_is_used(self):
        first = fc.all_reduce(self.row(self.rank), "sum", self.world)
        self.assertIsInstance(first, fc.AsyncCollectiveTensor)
        self.assertIsInstance(first.view(2, 3), fc.AsyncCollectiveTensor)
        second = fc.all_reduce(first, "sum", self.world)
        self.assertEqual(second + 0, self.total() * self.world_size)
        self.assertEqual(first.trigger_wait(), self.total())

    def test_results_nobody_waits_for(self):
        for _ in range(20):
            fc.all_reduce(self.row(self.rank), "sum", self.world)
        dist.barrier()

    def test_collectives_gathered_by_the_coalescing_manager(self):
        n = self.world_size
        whole, parts = [torch.zeros(6 * n, device=self.device) for _ in range(2)], [self.row(self.rank), self.row(self.rank) + 1]
        with _coalescing_manager(device=self.device, async_ops=True) as works:
            for output, part in zip(whole, parts):
                dist.all_gather_into_tensor(output, part, async_op=True)
        works.wait()
        self.assertEqual(whole, [torch.cat(self.rows()), torch.cat(self.rows()) + 1])
        with _coalescing_manager(device=self.device):
            for part in parts:
                dist.all_reduce(part)
        self.assertEqual(parts, [self.total(), self.total() + n])

    def test_traced(self):
        def function(x):
            return fc.all_gather_tensor(fc.all_reduce(x, "sum", self.world), 0, self.world) * 2

        graph = make_fx(function)(self.row(self.rank))
        names = {str(node.target).split(".")[1] for node in graph.graph.nodes if "c10d" in str(node.target)}
        self.assertEqual(names, {"all_reduce", "all_gather_into_tensor", "wait_tensor"})
        self.assertEqual(graph(self.row(self.rank)) + 0, self.total().repeat(self.world_size) * 2)


class Compiled(FunctionalTest):
    def same(self, function, *arguments):
        for backend in ("eager", "aot_eager"):
            compiled = torch.compile(function, backend=backend, fullgraph=True)
            self.assertEqual(compiled(*(a.clone() for a in arguments)), function(*(a.clone() for a in arguments)))
            torch._dynamo.reset()

    def test_functional_collectives(self):
        def function(x):
            y = fc.all_reduce(x * 2, "sum", self.world)
            return fc.reduce_scatter_tensor(fc.all_gather_tensor(y + 1, 0, self.world), "avg", 0, self.world) * 3

        self.same(function, self.row(self.rank))

    def test_collectives_of_c10d(self):
        def function(x):
            y = x * 2
            dist.all_reduce(y)
            out = torch.empty(x.numel() * self.world_size, device=x.device)
            dist.all_gather_into_tensor(out, y)
            return out + 1

        self.same(function, self.row(self.rank))

    def test_gradients(self):
        def function(x):
            return (fc.all_gather_tensor_autograd(x, 0, self.world) ** 2).sum()

        got = []
        for call in (function, torch.compile(function, backend="aot_eager")):
            x = self.row(self.rank).requires_grad_()
            call(x).backward()
            got.append(x.grad)
        self.assertEqual(got[1], got[0])


class Autograd(FunctionalTest):
    """The gradient of a sum of squares, weighted by rank, of what a collective gives."""

    def gradients(self, collective, mine):
        x = mine.clone().requires_grad_()
        output = collective(x)
        outputs = output if isinstance(output, (tuple, list)) else [output]
        sum(((self.rank + 1) * piece.square()).sum() for piece in outputs).backward()
        return x.grad

    @property
    def weights(self):
        return range(1, self.world_size + 1)

    def test_all_gather(self):
        expected = 2 * sum(self.weights) * self.row(self.rank)
        for gather in (
            lambda x: fc.all_gather_tensor_autograd(x, 0, self.world),
            lambda x: fc.all_gather_single_autograd(x, gather_dim=0, group=self.world),
            dist_nn.all_gather,
        ):
            self.assertEqual(self.gradients(gather, self.row(self.rank)), expected)

    def test_reduce_scatter(self):
        n = self.world_size
        total = self.total(3 * n)
        expected = torch.cat([2 * weight * part for weight, part in zip(self.weights, total.chunk(n))])
        for scatter in (
            lambda x: fc.reduce_scatter_tensor_autograd(x, "sum", 0, self.world),
            lambda x: dist_nn.reduce_scatter(torch.empty(3, device=self.device), list(x.chunk(n))),
        ):
            self.assertEqual(self.gradients(scatter, self.row(self.rank, 3 * n)), expected)

    def test_all_to_all(self):
        n = self.world_size
        expected = torch.cat([2 * weight * part for weight, part in zip(self.weights, self.row(self.rank, 2 * n).chunk(n))])
        for exchange in (
            lambda x: fc.all_to_all_single_autograd(x, [2] * n, [2] * n, self.world),
            lambda x: dist_nn.all_to_all_single(torch.empty_like(x), x),
            lambda x: dist_nn.all_to_all([torch.empty(2, device=self.device) for _ in range(n)], list(x.chunk(n))),
        ):
            self.assertEqual(self.gradients(exchange, self.row(self.rank, 2 * n)), expected)

    def test_all_reduce(self):
        expected = 2 * sum(self.weights) * self.total()
        self.assertEqual(self.gradients(dist_nn.all_reduce, self.row(self.rank)), expected)

    def test_broadcast(self):
        got = self.gradients(lambda x: dist_nn.broadcast(x, 0), self.row(self.rank))
        self.assertEqual(got, 2 * sum(self.weights) * self.row(0) if self.rank == 0 else torch.zeros_like(got))

    def test_reduce(self):
        got = self.gradients(lambda x: dist_nn.reduce(x.clone(), 1) if self.rank == 1 else 0 * dist_nn.reduce(x.clone(), 1), self.row(self.rank))
        self.assertEqual(got, 2 * 2 * self.total())

    def test_gather(self):
        got = self.gradients(lambda x: dist_nn.gather(x, 0) if self.rank == 0 else [0 * t for t in dist_nn.gather(x, 0)], self.row(self.rank))
        self.assertEqual(got, 2 * self.row(self.rank))

    def test_scatter(self):
        n = self.world_size
        got = self.gradients(lambda x: dist_nn.scatter(list(x.chunk(n)), 0), self.row(self.rank, 3 * n))
        parts = [2 * weight * part for weight, part in zip(self.weights, self.row(0, 3 * n).chunk(n))]
        self.assertEqual(got, torch.cat(parts) if self.rank == 0 else torch.zeros_like(got))

    def test_a_second_derivative(self):
        x = self.row(self.rank).double().requires_grad_()
        (first,) = torch.autograd.grad(dist_nn.all_reduce(x).pow(3).sum(), x, create_graph=True)
        first.sum().backward()
        n = self.world_size
        self.assertEqual(x.grad, 6 * n * n * self.total().double())


def load(backend: str, device: str, world_size: int) -> list[type]:
    _base.aim(backend, device, world_size)
    return _base.tests_for(Functional, Compiled, Autograd)

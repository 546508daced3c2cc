"""Pipeline schedules against one process that runs the same micro-batches through all stages one after the other."""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)
from torch.distributed.pipelining.microbatch import TensorChunkSpec
from torch.distributed.tensor import DTensor

from . import _base
from ._base import GroupTest

WIDTH = 13


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.outer = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, scale=None):
        y = self.outer(torch.tanh(self.inner(x))) + x
        return y if scale is None else y * scale


class Whole(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def loss_of(output, target):
    return (output - target).square().mean()


class PipelineTest(GroupTest):
    def blocks(self, count):
        torch.manual_seed(21)
        return [Block().to(self.device) for _ in range(count)]

    def data(self, rows, seed=22):
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(rows, WIDTH, generator=generator).to(self.device) for _ in range(2)]

    def alone(self, count, pieces, rows):
        """Losses of the micro-batches, the stages with their gradients, and the output; one process does it all."""
        parts = self.blocks(count)
        losses, outputs = [], []
        for x, target in zip(*(tensor.tensor_split(pieces) for tensor in self.data(rows))):
            for part in parts:
                x = part(x)
            outputs.append(x.detach())
            loss = loss_of(x, target)
            loss.backward()
            losses.append(loss.detach())
        for part in parts:
            for parameter in part.parameters():
                parameter.grad /= pieces
        return losses, parts, torch.cat(outputs)

    def same_gradients(self, mine, parts):
        for number, block in mine.items():
            for ours, theirs in zip(block.parameters(), parts[number].parameters()):
                gradient = ours.grad.full_tensor() if isinstance(ours.grad, DTensor) else ours.grad
                self.assertEqual(gradient, theirs.grad, rtol=1e-4, atol=1e-6)

    def stages(self, numbers, total, group=None):
        blocks = self.blocks(total)
        mine = {number: blocks[number] for number in numbers}
        return mine, [PipelineStage(block, number, total, self.device, group=group) for number, block in mine.items()]

    def run_one_step(self, schedule, first, last, rows):
        x, target = self.data(rows)
        losses = []
        schedule.step(*([x] if first else []), **({"target": target, "losses": losses} if last else {}))
        return losses


class OneStageEach(PipelineTest):
    def check(self, kind, pieces, rows):
        n = self.world_size
        last = self.rank == n - 1
        mine, (stage,) = self.stages([self.rank], n)
        losses = self.run_one_step(kind(stage, pieces, loss_fn=loss_of), self.rank == 0, last, rows)
        expected, parts, _ = self.alone(n, pieces, rows)
        self.same_gradients(mine, parts)
        self.assertEqual(losses, expected if last else [])

    def test_gpipe(self):
        self.check(ScheduleGPipe, 4, 12)

    def test_1f1b(self):
        self.check(Schedule1F1B, 8, 16)

    def test_more_micro_batches_than_stages(self):
        for kind in (ScheduleGPipe, Schedule1F1B):
            self.check(kind, 7, 14)

    def test_several_steps_with_an_optimiser(self):
        n, last = self.world_size, self.rank == self.world_size - 1
        mine, (stage,) = self.stages([self.rank], n)
        optimiser = torch.optim.SGD(mine[self.rank].parameters(), lr=0.1)
        schedule = Schedule1F1B(stage, 4, loss_fn=loss_of)
        means = []
        for _ in range(4):
            optimiser.zero_grad()
            losses = self.run_one_step(schedule, self.rank == 0, last, 8)
            optimiser.step()
            means += [torch.stack(losses).mean().item()] if last else []
        self.assertEqual(means, sorted(means, reverse=True))

    def test_output_without_a_loss(self):
        n = self.world_size
        _, (stage,) = self.stages([self.rank], n)
        with torch.no_grad():
            out = ScheduleGPipe(stage, 4).step(*([self.data(8)[0]] if self.rank == 0 else []))
        if self.rank == n - 1:
            self.assertEqual(out, self.alone(n, 4, 8)[2])

    def test_evaluation(self):
        n, last = self.world_size, self.rank == self.world_size - 1
        mine, (stage,) = self.stages([self.rank], n)
        schedule = Schedule1F1B(stage, 4, loss_fn=loss_of)
        x, target = self.data(8)
        losses = []
        schedule.eval(*([x] if self.rank == 0 else []), **({"target": target, "losses": losses} if last else {}))
        self.assertTrue(all(p.grad is None for p in mine[self.rank].parameters()))
        if last:
            self.assertEqual(losses, self.alone(n, 4, 8)[0])

    def test_keywords_cut_up_as_told(self):
        n, last = self.world_size, self.rank == self.world_size - 1
        mine, (stage,) = self.stages([self.rank], n)
        scale = torch.full((8, 1), 2.0, device=self.device)
        schedule = ScheduleGPipe(stage, 4, loss_fn=loss_of, kwargs_chunk_spec={"scale": TensorChunkSpec(0)})
        x, target = self.data(8)
        schedule.step(*([x] if self.rank == 0 else []), scale=scale, **({"target": target} if last else {}))
        self.assertIsNotNone(mine[self.rank].inner.weight.grad)

    def test_a_model_that_torch_cuts(self):
        n, last = self.world_size, self.rank == self.world_size - 1
        torch.manual_seed(21)
        whole = Whole(n).to(self.device)
        whole.load_state_dict({f"blocks.{i}.{k}": v for i, b in enumerate(self.blocks(n)) for k, v in b.state_dict().items()})
        spec = {f"blocks.{i}": SplitPoint.BEGINNING for i in range(1, n)}
        cut = pipeline(whole, mb_args=(self.data(8)[0].chunk(4)[0],), split_spec=spec)
        stage = cut.build_stage(self.rank, self.device)
        losses = self.run_one_step(ScheduleGPipe(stage, 4, loss_fn=loss_of), self.rank == 0, last, 8)
        expected, parts, _ = self.alone(n, 4, 8)
        self.assertEqual(losses, expected if last else [])
        got = {name.split(".", 2)[-1]: p.grad for name, p in stage.submod.named_parameters()}
        self.assertEqual(got, {name: p.grad for name, p in parts[self.rank].named_parameters()}, rtol=1e-4, atol=1e-6)


class BoundOneStageEach(OneStageEach):
    """The same where torch knows the rank's device from the start."""

    bound = True


class SeveralStagesEach(PipelineTest):
    def check(self, kind, numbers, pieces, rows):
        n = self.world_size
        total = 2 * n
        mine, stages = self.stages(numbers, total)
        last = total - 1 in numbers
        losses = self.run_one_step(kind(stages, pieces, loss_fn=loss_of), 0 in numbers, last, rows)
        expected, parts, _ = self.alone(total, pieces, rows)
        self.same_gradients(mine, parts)
        self.assertEqual(losses, expected if last else [])

    def in_turn(self):
        return [self.rank, self.rank + self.world_size]

    def there_and_back(self):
        return [self.rank, 2 * self.world_size - 1 - self.rank]

    def test_interleaved_1f1b(self):
        self.check(ScheduleInterleaved1F1B, self.in_turn(), 2 * self.world_size, 4 * self.world_size)

    def test_interleaved_1f1b_with_uneven_rounds(self):
        self.check(ScheduleInterleaved1F1B, self.in_turn(), self.world_size, 3 * self.world_size)

    def test_breadth_first(self):
        self.check(ScheduleLoopedBFS, self.in_turn(), 4, 8)

    def test_interleaved_zero_bubble(self):
        self.check(ScheduleInterleavedZeroBubble, self.in_turn(), 2 * self.world_size, 4 * self.world_size)

    def test_zero_bubble_in_a_v(self):
        self.check(ScheduleZBVZeroBubble, self.there_and_back(), 2 * self.world_size, 4 * self.world_size)

    def test_two_pipes_in_a_v(self):
        self.check(ScheduleDualPipeV, self.there_and_back(), 2 * self.world_size, 4 * self.world_size)


class WithDataParallel(PipelineTest):
    """Two pipelines side by side; every stage is shared by two ranks."""

    def pair(self, wrap):
        mesh = self.mesh(2, self.world_size // 2, names=("data", "stage"))
        place, n = mesh.get_local_rank("stage"), self.world_size // 2
        block = self.blocks(n)[place]
        stage = PipelineStage(wrap(deepcopy(block), mesh["data"]), place, n, self.device, group=mesh.get_group("stage"))
        losses = self.run_one_step(Schedule1F1B(stage, 4, loss_fn=loss_of), place == 0, place == n - 1, 8)
        expected, parts, _ = self.alone(n, 4, 8)
        self.assertEqual(losses, expected if place == n - 1 else [])
        self.same_gradients({place: stage.submod}, parts)

    def test_fully_shard(self):
        self.pair(lambda block, mesh: fully_shard(block, mesh=mesh))

    def test_copies(self):
        def wrap(block, mesh):
            for parameter in block.parameters():
                dist.broadcast(parameter.detach(), group_src=0, group=mesh.get_group())
            return block

        self.pair(wrap)


def load(backend: str, device: str, world_size: int) -> list[type]:
    _base.aim(backend, device, world_size)
    return _base.tests_for(OneStageEach, BoundOneStageEach, SeveralStagesEach, WithDataParallel)

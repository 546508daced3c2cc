"""Pipelines, compared with one process that runs the same micro-batches one after the other."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    pipeline,
)

import training
from training import on_ranks

MICRO_BATCHES = 4
SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


def layers(device, count):
    torch.manual_seed(21)
    return [nn.Sequential(nn.Linear(13, 13), nn.Tanh()).to(device) for _ in range(count)]


def data(device):
    generator = torch.Generator().manual_seed(22)
    shape = (3 * MICRO_BATCHES, 13)
    return (torch.randn(shape, generator=generator).to(device) for _ in range(2))


def alone(device, count):
    """The losses of the micro-batches, and the layers with their gradients."""
    parts = layers(device, count)
    x, target = data(device)
    losses = []
    for one, wanted in zip(x.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES)):
        loss = training.loss_of(nn.Sequential(*parts)(one), wanted)
        loss.backward()
        losses.append(loss)
    for part in parts:
        for parameter in part.parameters():
            parameter.grad /= MICRO_BATCHES
    return losses, parts


def gradients(part):
    return [parameter.grad for parameter in part.parameters()]


def run_schedule(schedule, device, last):
    x, target = data(device)
    losses = []
    arguments = [x] if dist.get_rank() == 0 else []
    wanted = {"target": target, "losses": losses} if last else {}
    schedule.step(*arguments, **wanted)
    return losses


def through_stages(device, name):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = layers(device, ranks)[rank]
    schedule = SCHEDULES[name](PipelineStage(mine, rank, ranks, device), MICRO_BATCHES, loss_fn=training.loss_of)
    losses = run_schedule(schedule, device, last=rank == ranks - 1)
    expected, parts = alone(device, ranks)
    training.same_parameters(gradients(mine), gradients(parts[rank]))
    training.same_parameters(losses, expected if rank == ranks - 1 else [])


@pytest.mark.parametrize("name", SCHEDULES)
def test_two_stages(device, name):
    on_ranks(through_stages, 2, device, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_four_stages(device, name):
    on_ranks(through_stages, 4, device, name)


def interleaved(device):
    """Each rank has two stages, so the ring is run twice."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = {stage: layers(device, 2 * ranks)[stage] for stage in (rank, rank + ranks)}
    stages = [PipelineStage(part, stage, 2 * ranks, device) for stage, part in mine.items()]
    run_schedule(ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=training.loss_of), device, last=rank == ranks - 1)
    _, parts = alone(device, 2 * ranks)
    for stage, part in mine.items():
        training.same_parameters(gradients(part), gradients(parts[stage]))


def test_interleaved_stages(device):
    on_ranks(interleaved, 2, device)


class Whole(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.first, self.second = layers(device, 2)

    def forward(self, x):
        return self.second(self.first(x))


def split_by_tracing(device):
    """torch cuts the model itself; the tensors that its stages pass on may have no dimension."""
    rank = dist.get_rank()
    x, _ = data(device)
    cut = pipeline(Whole(device), mb_args=(x.chunk(MICRO_BATCHES)[0],), split_spec={"second": SplitPoint.BEGINNING})
    stage = cut.build_stage(rank, device)
    run_schedule(ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=training.loss_of), device, last=rank == 1)
    _, parts = alone(device, 2)
    training.same_parameters(gradients(stage.submod), gradients(parts[rank]))


@pytest.mark.slow
def test_a_model_that_torch_cuts(device):
    on_ranks(split_by_tracing, 2, device)

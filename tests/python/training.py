"""What the tests of torch's frameworks share: ranks with a device each, a model of odd sizes, and plain training of it.

The learning rate is a power of two and the optimiser plain descent, so a step rounds once however the parameters are cut
up, and the sum of two ranks' gradients is the same in either order: on two ranks results are compared exactly.
"""

import os
from datetime import timedelta

import torch
import torch._dynamo  # an optimiser's step imports it, which takes seconds: once here, not in every rank
import torch.distributed as dist
from torch import nn

from ranks import make_store, run_ranks

LEARNING_RATE = 0.125
STEPS = 3
BATCH = 6  # examples of one rank in one step


def on_ranks(function, ranks, device, *arguments, bind=False, timeout=100, environment=None):
    """`function(device, *arguments)` on every rank, in a group; its results by rank. With `bind` torch is given the rank's
    device when the group is made."""
    return run_ranks(_member, ranks, function, device, bind, arguments, group=False, timeout=timeout,
                     environment=environment)


def _member(rank, size, listener, function, kind, bind, arguments):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    device = torch.device(kind)
    if kind != "cpu":
        device = torch.device(kind, rank % torch.accelerator.device_count())
        torch.accelerator.set_device_index(device.index)
    dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size,
                            timeout=timedelta(seconds=30), device_id=device if bind else None)
    torch.manual_seed(1234)
    result = function(device, *arguments)
    dist.destroy_process_group()
    return result


def model(device, dtype=torch.float32):
    """The same on every rank."""
    torch.manual_seed(7)
    layers = nn.Sequential(nn.Linear(13, 17), nn.ReLU(), nn.Linear(17, 19), nn.Tanh(), nn.Linear(19, 5))
    return layers.to(dtype).to(device)


def batch(step, rank, device, dtype=torch.float32):
    """Input and target of one rank."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(BATCH, 13, generator=generator)
    return x.to(dtype).to(device), torch.randn(BATCH, 5, generator=generator).to(dtype).to(device)


def loss_of(output, target):
    return (output - target).square().mean()


def descent(parameters):
    return torch.optim.SGD(parameters, lr=LEARNING_RATE)


def train(wrapped, device, optimiser=None, steps=STEPS, dtype=torch.float32):
    """This rank's part of a data-parallel training; the losses."""
    optimiser = optimiser or descent(wrapped.parameters())
    losses = []
    for step in range(steps):
        x, target = batch(step, dist.get_rank(), device, dtype)
        optimiser.zero_grad()
        loss = loss_of(wrapped(x), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def train_alone(device, ranks, make_optimiser=descent, steps=STEPS, plain=None):
    """The whole job by one process: the mean of the gradients that the ranks would have."""
    plain = plain or model(device)
    optimiser = make_optimiser(plain.parameters())
    for step in range(steps):
        optimiser.zero_grad()
        gradients = []
        for rank in range(ranks):
            x, target = batch(step, rank, device)
            gradients.append(torch.autograd.grad(loss_of(plain(x), target), list(plain.parameters())))
        for parameter, parts in zip(plain.parameters(), zip(*gradients)):
            parameter.grad = sum(part / ranks for part in parts)
        optimiser.step()
    return plain


def same_parameters(got, expected, **tolerance):
    """Compares two models, or two lists of tensors. Exact unless a tolerance is given."""
    got, expected = (list(m.parameters()) if isinstance(m, nn.Module) else list(m) for m in (got, expected))
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        torch.testing.assert_close(one, other, **(tolerance or {"rtol": 0, "atol": 0}))

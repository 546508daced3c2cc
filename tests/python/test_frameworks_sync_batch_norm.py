"""nn.SyncBatchNorm over several ranks, some with more of the batch than others, is BatchNorm in one process."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training import on_ranks


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(9, 3, 4, 5, generator=generator) * 3 + 1


def network(momentum):
    torch.manual_seed(7)
    return nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6, momentum=momentum), nn.ReLU(), nn.Conv2d(6, 2, 1))


def train(net, choose, device, factor):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(3):
        optimiser.zero_grad()
        (net(choose(batch(step)).to(device)).square().sum() * factor).backward()
        optimiser.step()
    return net


def close(a, b):
    torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


def as_one_process(device, momentum, format, parts):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    net = nn.SyncBatchNorm.convert_sync_batchnorm(network(momentum)).to(device).to(memory_format=format)
    net = DistributedDataParallel(net)
    # DDP divides by the number of ranks.
    train(net, lambda x: x.split(parts)[rank].contiguous(memory_format=format), device, ranks / 500)
    alone = train(network(momentum), lambda x: x, "cpu", 1 / 500)
    for (name, ours), theirs in zip(net.module.state_dict().items(), alone.state_dict().values()):
        if name != "1.num_batches_tracked":
            close(ours, theirs)
        assert ours.cpu().isfinite().all()


@pytest.mark.parametrize("momentum", [0.3, None])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("parts", [(3, 3, 3), (5, 1, 3), (4, 0, 5)])
def test_it_is_batch_norm_of_the_whole(sim, momentum, format, parts):
    on_ranks(as_one_process, 3, sim, momentum, format, parts)


def only_one_evaluates(device):
    layer = nn.SyncBatchNorm(3).to(device)
    layer(batch(dist.get_rank()).to(device))
    if dist.get_rank() == 0:
        layer.eval()
        assert layer(batch(5).to(device)).shape == (9, 3, 4, 5)


def test_evaluation_asks_no_other_rank(sim):
    on_ranks(only_one_evaluates, 2, sim)


def in_bfloat16(device):
    rank = dist.get_rank()
    layer = nn.SyncBatchNorm(3, affine=False).to(device)
    x = batch(0).bfloat16()
    y = layer(x.split((5, 4))[rank].to(device))
    assert y.dtype == torch.bfloat16 and layer.running_mean.dtype == torch.float32
    expected = nn.functional.batch_norm(x.float(), None, None, training=True).split((5, 4))[rank]
    torch.testing.assert_close(y.float().cpu(), expected, rtol=1e-2, atol=1e-2)
    close(layer.running_mean, x.float().mean((0, 2, 3)) * 0.1)


def test_half_precision_keeps_its_statistics_in_float32(sim):
    on_ranks(in_bfloat16, 2, sim)

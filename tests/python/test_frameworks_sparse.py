"""Sparse gradients under DistributedDataParallel: of an embedding, each rank has touched other rows."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training import on_ranks


def network(sparse):
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(11, 4, sparse=sparse), nn.Linear(4, 3))


def words(rank, step):
    return torch.tensor([[rank, 3, step], [rank + 5, 3, 3]])


def as_one_process(device):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    net = DistributedDataParallel(network(sparse=True).to(device))
    alone = network(sparse=False)
    optimisers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in (net, alone)]
    for step in range(3):
        for optimiser in optimisers:
            optimiser.zero_grad()
        net(words(rank, step).to(device)).square().mean().backward()
        alone(torch.cat([words(other, step) for other in range(ranks)])).square().mean().backward()
        gradient = net.module[0].weight.grad
        assert gradient.is_sparse and gradient.device.type == device.type
        torch.testing.assert_close(gradient.to_dense().cpu(), alone[0].weight.grad)
        for optimiser in optimisers:
            optimiser.step()
    for ours, theirs in zip(net.parameters(), alone.parameters()):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_an_embedding_trains_as_in_one_process(device):
    on_ranks(as_one_process, 2, device)


def test_three_ranks_touch_rows_of_their_own(device):
    on_ranks(as_one_process, 3, device)

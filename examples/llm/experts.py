"""A mixture of experts whose experts are spread over the ranks of a group.

A router gives every token to its best one or two experts. An all-to-all with uneven parts brings tokens to the ranks
that hold their experts, and a second one brings the results back.
"""

import math

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor


def route(logits: torch.Tensor, top: int):
    """The experts of each token and their weights, both (rows, tokens, top), from logits (rows, tokens, experts)."""
    weights, chosen = logits.softmax(dim=-1).topk(top, dim=-1)
    if top > 1:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, chosen


def one_hot(chosen: torch.Tensor, experts: int) -> torch.Tensor:
    return (chosen[..., None] == torch.arange(experts, device=chosen.device)).long()


def within_capacity(chosen: torch.Tensor, experts: int, capacity: int, before=None) -> torch.Tensor:
    """Which choices an expert has room for. It takes `capacity` of each row, the earlier tokens first.

    The capacity is counted within a row, that is a sequence, so rows can be spread over ranks without a change of the
    result. `before` (rows, experts) counts the choices of the tokens that lie on earlier ranks.
    """
    wanted = one_hot(chosen.flatten(1), experts)
    place = wanted.cumsum(dim=1) - wanted
    if before is not None:
        place = place + before[:, None]
    return ((place * wanted).sum(dim=-1) < capacity).view_as(chosen)


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


class Experts(nn.Module):
    def __init__(self, width: int, experts: int, top: int, capacity: float | None):
        super().__init__()
        self.count, self.top, self.capacity = experts, top, capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.bank = Bank(width, experts)
        self.sequence_group = None  # the ranks that have the other parts of the same sequences

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = route(self.router(x), self.top)
        where = torch.arange(chosen.numel(), device=x.device)
        if self.capacity is not None:
            kept = within_capacity(chosen, self.count, self._room(x.shape[1]), self._chosen_before(chosen))
            where = where[kept.flatten()]
        expert = chosen.flatten()[where]
        order = expert.argsort(stable=True)
        where = where[order]  # the kept choices, those of expert 0 first
        token = where // self.top
        sent = one_hot(expert, self.count).sum(dim=0)
        result = self.bank(x.flatten(0, 1)[token], sent) * weights.flatten()[where, None]
        return torch.zeros_like(x.flatten(0, 1)).index_add(0, token, result).view_as(x)

    def _room(self, tokens: int) -> int:
        ranks = dist.get_world_size(self.sequence_group) if self.sequence_group else 1
        return math.ceil(self.capacity * ranks * tokens * self.top / self.count)

    def _chosen_before(self, chosen):
        if self.sequence_group is None:
            return None
        mine = one_hot(chosen.flatten(1), self.count).sum(dim=1)
        everyone = mine.new_empty(dist.get_world_size(self.sequence_group), *mine.shape)
        dist.all_gather_into_tensor(everyone, mine, group=self.sequence_group)
        return everyone[: dist.get_rank(self.sequence_group)].sum(dim=0)


class Bank(nn.Module):
    """The experts themselves, or with a group those of this rank: an equal, contiguous part."""

    def __init__(self, width: int, experts: int):
        super().__init__()
        self.expand = nn.Parameter(torch.empty(experts, width, 4 * width))
        self.contract = nn.Parameter(torch.empty(experts, 4 * width, width))
        self.group = None

    def forward(self, tokens: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
        """Each token through its expert. Tokens are ordered by expert; `sent` counts those of each expert."""
        if self.group is None:
            return self._compute(tokens, sent.tolist())
        ranks = dist.get_world_size(self.group)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        there = sent.view(ranks, -1).sum(dim=1).tolist()
        here = received.view(ranks, -1).sum(dim=1).tolist()
        came = functional.all_to_all_single_autograd(tokens, here, there, self.group)
        # They lie ordered by the rank they come from, and within a rank by expert.
        expert = torch.arange(len(sent) // ranks, device=sent.device).repeat(ranks).repeat_interleave(received)
        order = expert.argsort(stable=True)
        result = self._compute(came[order], received.view(ranks, -1).sum(dim=0).tolist())
        return functional.all_to_all_single_autograd(result[order.argsort()], there, here, self.group)

    def _compute(self, tokens, counts: list[int]):
        expand, contract = self._weights()
        # An expert without tokens computes, too: its gradient is zero then, and not missing.
        return torch.cat([F.gelu(part @ expand[i]) @ contract[i] for i, part in enumerate(tokens.split(counts))])

    def _weights(self):
        weights = [w.to_local() if isinstance(w, DTensor) else w for w in (self.expand, self.contract)]
        if self.group is None:
            return weights
        # The tokens of all ranks of the group meet here, each with the gradient of its own rank's mean loss.
        # Everywhere else data parallelism takes the mean over those ranks.
        return [ScaleGradient.apply(w, 1 / dist.get_world_size(self.group)) for w in weights]

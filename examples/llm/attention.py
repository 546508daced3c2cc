"""Causal attention over a sequence that is cut into equal, contiguous parts over the ranks of a group.

torch's own `context_parallel` calls attention operators of CUDA by name. These two forms use plain operators and
collectives, so they run on any device:

* ring: every rank keeps its queries; keys and values go round. With each block that arrives, a rank merges the new
  partial result into the old one by their log-sum-exp (Liu et al., Ring Attention, arXiv 2310.01889).
* all-gather: every rank collects all keys and values first. One collective, but memory for the whole sequence.

All tensors are (rows, heads, tokens, width of a head).
"""

import functools
import math

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F


def causal(query, key, value):
    """The sequence lies whole on this rank."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def scores(query, key, diagonal: bool):
    """Scaled products. In a diagonal block, no token sees the tokens after it."""
    found = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if diagonal:
        tokens = torch.arange(query.shape[-2], device=query.device)
        found = found.masked_fill(tokens[:, None] < tokens, -math.inf)
    return found


def partial(query, key, value, diagonal: bool):
    """Attention to one block of keys: its result, and the log-sum-exp of its scores (rows, heads, tokens, 1)."""
    found = scores(query, key, diagonal)
    weight = found.logsumexp(dim=-1, keepdim=True)
    return (found - weight).exp() @ value, weight


def merge(one, one_weight, other, other_weight):
    """The attention to two blocks of keys together, from the attention to each."""
    weight = torch.logaddexp(one_weight, other_weight)
    return one * (one_weight - weight).exp() + other * (other_weight - weight).exp(), weight


class Ring:
    """Passes tensors to the next rank of the group and receives those of the previous one."""

    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def start(self, outgoing):
        """Begins an exchange; `finish` returns what came."""
        outgoing = outgoing.contiguous()
        incoming = torch.empty_like(outgoing)
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, outgoing, group=self.group, group_peer=right),
            dist.P2POp(dist.irecv, incoming, group=self.group, group_peer=left),
        ])
        return works, outgoing, incoming  # `outgoing` stays alive until the exchange is over

    def finish(self, exchange):
        works, _, incoming = exchange
        for work in works:
            work.wait()
        return incoming


class RingAttention(torch.autograd.Function):
    """In step i a rank holds the keys of the rank i places before it. Keys from later ranks are hidden: no work."""

    @staticmethod
    def forward(ctx, query, key, value, group):
        ring = Ring(group)
        block = torch.stack((key, value))
        result, weight = None, None
        for step in range(ring.size):
            exchange = ring.start(block) if step < ring.size - 1 else None  # beside the computation
            if step == 0:
                result, weight = partial(query, *block, diagonal=True)
            elif step <= ring.rank:
                result, weight = merge(result, weight, *partial(query, *block, diagonal=False))
            if exchange:
                block = ring.finish(exchange)
        ctx.save_for_backward(query, key, value, result, weight)
        ctx.group = group
        return result

    @staticmethod
    def backward(ctx, gradient):
        """A block's gradient travels with the block; after a whole round both are back at their owner."""
        query, key, value, result, weight = ctx.saved_tensors
        ring = Ring(ctx.group)
        scale = 1 / math.sqrt(query.shape[-1])
        along = (gradient * result).sum(dim=-1, keepdim=True)
        block = torch.stack((key, value))
        query_gradient, block_gradient = torch.zeros_like(query), torch.zeros_like(block)
        for step in range(ring.size):
            exchange = ring.start(block) if step < ring.size - 1 else None
            if step <= ring.rank:
                key, value = block
                probability = (scores(query, key, diagonal=step == 0) - weight).exp()
                inner = probability * (gradient @ value.transpose(-2, -1) - along) * scale
                query_gradient += inner @ key
                block_gradient[0] += inner.transpose(-2, -1) @ query
                block_gradient[1] += probability.transpose(-2, -1) @ gradient
            if exchange:
                block = ring.finish(exchange)
            block_gradient = ring.finish(ring.start(block_gradient))
        return query_gradient, block_gradient[0], block_gradient[1], None


def ring_attention(query, key, value, group):
    return RingAttention.apply(query, key, value, group)


def all_gather_attention(query, key, value, group):
    """The gradient of the all-gather is a reduce-scatter, which autograd adds."""
    key, value = (functional.all_gather_tensor_autograd(part.contiguous(), 2, group) for part in (key, value))
    first = dist.get_rank(group) * query.shape[-2]
    position = first + torch.arange(query.shape[-2], device=query.device)
    visible = position[:, None] >= torch.arange(key.shape[-2], device=query.device)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=visible)


FORMS = {"ring": ring_attention, "allgather": all_gather_attention}


def over(group, form: str):
    """The attention function of a rank of `group`."""
    return functools.partial(FORMS[form], group=group)

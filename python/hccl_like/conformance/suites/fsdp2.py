"""fully_shard against the same model trained whole, compared after every step with `check_sharded_parity` of torch's base."""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable import checkpoint, replicate
from torch.distributed._composable.replicate_with_fsdp import replicate as replicate_by_shards
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn import Linear
from torch.testing._internal.common_fsdp import MLP, DoubleLinear, check_sharded_parity
from torch.testing._internal.distributed._tensor.common_dtensor import ModelArgs, Transformer, TransformerBlock

from . import _base
from ._fsdp2_base import WIDTH, Fsdp2Test, sgd, sharded
from ._fsdp2_communication import Communication, Precision
from ._fsdp2_states import States


class Parity(Fsdp2Test):
    def alike(self, mesh=None, count: int = 3, **options):
        plain = self.plain(count)
        self.trains_alike(plain, sharded(deepcopy(plain), mesh or self.mesh(), **options))

    def test_the_parts_and_the_whole(self):
        self.alike()

    def test_one_group_for_the_whole(self):
        plain = self.plain()
        self.trains_alike(plain, fully_shard(deepcopy(plain), mesh=self.mesh()))

    def test_parameters_kept_after_forward(self):
        self.alike(reshard_after_forward=False)

    def test_parameters_sharded_over_fewer_ranks_after_forward(self):
        self.alike(reshard_after_forward=2)

    def test_more_ranks_than_rows(self):
        torch.manual_seed(3)
        plain = nn.Sequential(Linear(WIDTH, 3), nn.Tanh(), Linear(3, 1, bias=False)).to(self.device)
        self.trains_alike(plain, sharded(deepcopy(plain), self.mesh()))

    def test_two_replicas(self):
        for reshard in (True, False):
            self.alike(self.square("replicate", "shard"), reshard_after_forward=reshard)

    def test_a_slice_of_a_mesh(self):
        whole = self.mesh(2, self.world_size // 2, names=("replicate", "shard"))
        plain = self.plain()
        wrapped = sharded(deepcopy(plain), whole["shard"])
        row = whole.get_local_rank("replicate") * (self.world_size // 2)
        wrapped(self.batch(0, self.rank)).square().mean().backward()
        for rank in range(row, row + self.world_size // 2):
            (plain(self.batch(0, rank)).square().mean() / (self.world_size // 2)).backward()
        check_sharded_parity(self, plain, wrapped)

    def test_shards_along_the_longest_side(self):
        torch.manual_seed(3)
        plain = nn.Sequential(*(Linear(8, 24), nn.ReLU(), Linear(24, 8))).to(self.device)
        longest = lambda p: Shard(max(range(p.dim()), key=lambda side: p.shape[side]))  # noqa: E731
        wrapped = fully_shard(deepcopy(plain), mesh=self.mesh(), shard_placement_fn=longest)
        self.assertEqual({p.placements[0].dim for p in wrapped.parameters()}, {0, 1})
        wrapped(self.batch(0, self.rank, 8)).square().mean().backward()
        for rank in range(self.world_size):
            (plain(self.batch(0, rank, 8)).square().mean() / self.world_size).backward()
        check_sharded_parity(self, plain, wrapped)

    def test_a_transformer(self):
        self.run_subtests({"tied": [True, False], "again": [True, False]}, self.transformer)

    def transformer(self, tied, again):
        torch.manual_seed(42)
        plain = Transformer(ModelArgs(n_layers=2, vocab_size=11, dropout_p=0, weight_tying=tied)).to(self.device)
        wrapped = deepcopy(plain)
        for part in wrapped.modules():
            if isinstance(part, TransformerBlock):
                if again:
                    checkpoint(part)
                fully_shard(part, mesh=self.mesh())
        fully_shard(wrapped, mesh=self.mesh())
        one, other = sgd(plain.parameters()), sgd(wrapped.parameters())
        for step in range(2):
            tokens = [torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(10 * step + r)) for r in
                      range(self.world_size)]  # fmt: skip
            wrapped(tokens[self.rank].to(self.device)).sum().backward()
            for part in tokens:
                (plain(part.to(self.device)).sum() / self.world_size).backward()
            for optimiser in (one, other):
                optimiser.step()
                optimiser.zero_grad()
        for ours, theirs in zip(wrapped.parameters(), plain.parameters()):
            self.assertEqual(ours.full_tensor(), theirs, rtol=1e-4, atol=1e-4)

    def test_frozen_and_unused_parameters(self):
        plain = nn.Sequential(*(DoubleLinear(WIDTH, use_second_linear=False) for _ in range(2))).to(self.device)
        for parameter in plain.parameters():
            dist.broadcast(parameter.detach(), 0)
        plain[0].lin1.weight.requires_grad_(False)
        self.trains_alike(plain, sharded(deepcopy(plain), self.mesh()))

    def test_two_outputs_of_which_one_is_used(self):
        torch.manual_seed(3)
        plain = DoubleLinear(WIDTH).to(self.device)
        wrapped = deepcopy(plain)
        for part in (wrapped.lin1, wrapped.lin2):
            fully_shard(part, mesh=self.mesh())
        fully_shard(wrapped, mesh=self.mesh())
        for used in (0, 1):
            wrapped(self.batch(0, self.rank))[used].sum().backward()
            for rank in range(self.world_size):
                (plain(self.batch(0, rank))[used].sum() / self.world_size).backward()
            check_sharded_parity(self, plain, wrapped)

    def test_ignored_parameters_stay_whole(self):
        plain = self.plain(2)
        ignored = {plain[0].in_proj.bias}
        fully_shard(plain, mesh=self.mesh(), ignored_params=ignored)
        self.assertEqual([isinstance(p, DTensor) for p in plain.parameters()].count(False), 1)
        plain(self.batch(0, self.rank)).sum().backward()

    def test_a_method_other_than_forward(self):
        plain = self.plain(1)
        wrapped = fully_shard(deepcopy(plain[0]), mesh=self.mesh())
        wrapped.twice = lambda x: 2 * wrapped.in_proj(x)
        register_fsdp_forward_method(wrapped, "twice")
        self.assertEqual(wrapped.twice(self.batch(0, 0)), 2 * plain[0].in_proj(self.batch(0, 0)))

    def test_filled_after_a_start_without_memory(self):
        torch.manual_seed(3)
        with torch.device("meta"):
            empty = nn.Sequential(*(MLP(WIDTH) for _ in range(2)))
        sharded(empty, self.mesh())
        empty.to_empty(device=self.device)
        plain = nn.Sequential(*(MLP(WIDTH) for _ in range(2))).to(self.device)
        for parameter in plain.parameters():
            dist.broadcast(parameter.detach(), 0)
        with torch.no_grad():
            for ours, theirs in zip(empty.parameters(), plain.parameters()):
                ours.copy_(distribute_tensor(theirs, ours.device_mesh, ours.placements))
        self.trains_alike(plain, empty)

    def test_replicate(self):
        plain = self.plain()
        wrapped = replicate(deepcopy(plain))
        wrapped(self.batch(0, self.rank)).square().mean().backward()
        self.whole_step(plain, 0)
        self.assertEqual([p.grad for p in wrapped.parameters()], [p.grad for p in plain.parameters()], rtol=1e-4, atol=1e-6)

    def test_replicate_by_means_of_fully_shard(self):
        plain = self.plain()
        wrapped = deepcopy(plain)
        for part in wrapped:
            replicate_by_shards(part, mesh=self.mesh())
        self.trains_alike(plain, replicate_by_shards(wrapped, mesh=self.mesh()), check=False)


class BoundParity(Parity):
    """The same where torch knows the rank's device from the start, so that meshes split the default group."""

    bound = True


def load(backend: str, device: str, world_size: int) -> list[type]:
    _base.aim(backend, device, world_size)
    return _base.tests_for(Parity, BoundParity, Communication, Precision, States)

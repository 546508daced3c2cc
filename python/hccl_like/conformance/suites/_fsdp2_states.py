"""Saving and loading what fully_shard shards."""

from __future__ import annotations

import io
from copy import deepcopy

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.testing._internal.common_fsdp import MLP

from ._base import FsdpTest


class States(FsdpTest):
    def make(self, seed: int, mesh=None):
        torch.manual_seed(seed)
        model = nn.Sequential(*(MLP(13, dim_multiplier=3) for _ in range(2))).to(self.device)
        for part in model:
            fully_shard(part, mesh=mesh or self.mesh())
        fully_shard(model, mesh=mesh or self.mesh())
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    def step(self, model, optimiser):
        generator = torch.Generator().manual_seed(self.rank)
        optimiser.zero_grad()
        model(torch.randn(4, 13, generator=generator).to(self.device)).square().mean().backward()
        optimiser.step()

    def same(self, one, other):
        self.assertEqual([p.full_tensor() for p in one.parameters()], [p.full_tensor() for p in other.parameters()])

    def test_a_plain_state_dict_holds_shards(self):
        one, _ = self.make(3)
        other, _ = self.make(4)
        state = one.state_dict()
        self.assertTrue(all(isinstance(value, DTensor) for value in state.values()))
        other.load_state_dict(state)
        self.same(one, other)

    def test_shards_taken_over_without_a_copy(self):
        one, _ = self.make(3)
        other, _ = self.make(4)
        other.load_state_dict({name: value.clone() for name, value in one.state_dict().items()}, assign=True)
        self.same(one, other)

    def test_the_whole_state_distributed_again(self):
        mesh = self.square("replicate", "shard")
        one, _ = self.make(3)
        other, _ = self.make(4, mesh)
        whole = {name: value.full_tensor() for name, value in one.state_dict().items()}
        for name, parameter in other.state_dict().items():
            parameter.copy_(distribute_tensor(whole[name], mesh, parameter.placements))
        self.same(one, other)

    def test_model_and_optimiser_go_on_after_loading(self):
        options = StateDictOptions(full_state_dict=True)
        for kind in (None, options):
            (one, first), (other, second) = self.make(3), self.make(4)
            self.step(one, first)
            set_model_state_dict(other, get_model_state_dict(one, options=kind), options=kind)
            state = deepcopy(get_optimizer_state_dict(one, first, options=kind))  # an optimiser keeps the tensors it is given
            set_optimizer_state_dict(other, second, state, options=kind)
            self.step(one, first)
            self.step(other, second)
            self.same(one, other)

    def test_rank_0_has_the_whole_state_on_the_host(self):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        one, _ = self.make(3)
        state = get_model_state_dict(one, options=options)
        self.assertEqual(len(state), 8 if self.rank == 0 else 0)
        self.assertTrue(all(value.device.type == "cpu" for value in state.values()))
        other, _ = self.make(4)
        set_model_state_dict(other, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
        self.same(one, other)

    def test_a_model_without_memory_takes_rank_0_s_state(self):
        one, _ = self.make(3)
        whole = get_model_state_dict(one, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        with torch.device("meta"):
            other = nn.Sequential(*(MLP(13, dim_multiplier=3) for _ in range(2)))
        for part in other:
            fully_shard(part, mesh=self.mesh())
        fully_shard(other, mesh=self.mesh())
        other.to_empty(device=self.device)
        set_model_state_dict(other, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
        self.same(one, other)

    def test_a_file_of_each_rank(self):
        one, first = self.make(3)
        self.step(one, first)
        file = io.BytesIO()
        torch.save({"model": one.state_dict(), "optimiser": first.state_dict()}, file)
        file.seek(0)
        state = torch.load(file, weights_only=False)
        other, second = self.make(4)
        other.load_state_dict(state["model"])
        second.load_state_dict(deepcopy(state["optimiser"]))
        self.step(one, first)
        self.step(other, second)
        self.same(one, other)

"""State dicts of FullyShardedDataParallel, of the model and of the optimiser."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor
from torch.nn import Linear

from ._base import FsdpTest, needs, on_accelerator, on_host

FREED = "torch frees the memory of a state dict that it offloads to where it already is"
MIXED_UP = "torch gathers the moments of an optimiser wrongly on CPU tensors: one's values are those of the other"

adam = partial(torch.optim.Adam, lr=0.01)


class States(FsdpTest):
    def make(self, seed=3, **options):
        torch.manual_seed(seed)
        plain = nn.Sequential(Linear(6, 10), nn.ReLU(), Linear(10, 7), nn.BatchNorm1d(7), Linear(7, 3)).to(self.device)
        options = {"use_orig_params": True, **on_host(), **options}
        return FSDP(plain, auto_wrap_policy=ModuleWrapPolicy({Linear}), **options)

    def step(self, model, optimiser):
        generator = torch.Generator().manual_seed(self.rank)
        optimiser.zero_grad()
        model(torch.randn(5, 6, generator=generator).to(self.device)).square().mean().backward()
        optimiser.step()

    def whole(self, model):
        with FSDP.summon_full_params(model):
            return deepcopy([parameter.detach() for parameter in model.parameters()])

    def goes_and_comes_back(self, kind, model_options=None, **options):
        """Saves a trained model's state, loads it into a differently initialised one, and trains both on."""
        one, other = (self.make(seed, **(model_options or {})) for seed in (3, 4))
        first, second = adam(one.parameters()), adam(other.parameters())
        self.step(one, first)
        with FSDP.state_dict_type(one, kind, **options):
            state = one.state_dict()
            optimiser_state = FSDP.optim_state_dict(one, first)
        with FSDP.state_dict_type(other, kind, **options):
            other.load_state_dict(state)
            second.load_state_dict(FSDP.optim_state_dict_to_load(other, second, optimiser_state))
        self.assertEqual(self.whole(other), self.whole(one))
        self.step(one, first)
        self.step(other, second)
        self.assertEqual(self.whole(other), self.whole(one))
        return state

    @needs(on_accelerator, MIXED_UP)
    def test_the_full_state(self):
        state = self.goes_and_comes_back(StateDictType.FULL_STATE_DICT)
        self.assertEqual(tuple(state["0.weight"].shape), (10, 6))

    def test_the_full_state_of_flat_parameters(self):
        self.goes_and_comes_back(StateDictType.FULL_STATE_DICT, {"use_orig_params": False})

    @needs(on_accelerator, FREED)
    def test_the_full_state_on_the_host(self):
        state = self.goes_and_comes_back(
            StateDictType.FULL_STATE_DICT,
            state_dict_config=FullStateDictConfig(offload_to_cpu=True),
            optim_state_dict_config=FullOptimStateDictConfig(offload_to_cpu=True),
        )
        self.assertEqual({value.device.type for value in state.values()}, {"cpu"})

    @needs(on_accelerator, FREED)
    def test_the_full_state_on_rank_0_only(self):
        model = self.make()
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
            state = model.state_dict()
        self.assertEqual(len(state) > 0, self.rank == 0)

    def test_the_sharded_state(self):
        self.goes_and_comes_back(StateDictType.SHARDED_STATE_DICT)

    @needs(on_accelerator, FREED)
    def test_the_sharded_state_on_the_host(self):
        self.goes_and_comes_back(
            StateDictType.SHARDED_STATE_DICT,
            state_dict_config=ShardedStateDictConfig(offload_to_cpu=True),
            optim_state_dict_config=ShardedOptimStateDictConfig(offload_to_cpu=True),
        )

    def test_the_sharded_state_of_a_mesh(self):
        mesh = self.mesh()
        state = self.goes_and_comes_back(StateDictType.SHARDED_STATE_DICT, {"device_mesh": mesh})
        self.assertIsInstance(state["0.weight"], DTensor)
        self.assertEqual(state["0.weight"].device_mesh, mesh)

    def test_the_sharded_state_of_two_replicas(self):
        hybrid = {"device_mesh": self.square("replicate", "shard"), "sharding_strategy": ShardingStrategy.HYBRID_SHARD}
        self.goes_and_comes_back(StateDictType.SHARDED_STATE_DICT, hybrid)

    def test_the_local_state(self):
        one, other = (self.make(seed, use_orig_params=False) for seed in (3, 4))
        for model in (one, other):
            FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
        other.load_state_dict(one.state_dict())
        self.assertEqual(self.whole(other), self.whole(one))

    def test_the_optimiser_s_state_scattered_from_rank_0(self):
        one, other = (self.make(3, use_orig_params=False) for _ in range(2))
        first, second = adam(one.parameters()), adam(other.parameters())
        self.step(one, first)
        self.step(other, second)
        self.step(one, first)
        full = FSDP.full_optim_state_dict(one, first, rank0_only=True)
        second.load_state_dict(FSDP.scatter_full_optim_state_dict(full if self.rank == 0 else None, other))
        self.assertEqual([s["exp_avg"] for s in second.state.values()], [s["exp_avg"] for s in first.state.values()])

    def test_the_optimiser_s_state_of_ungrouped_ranks_is_keyed_by_name(self):
        model = self.make(use_orig_params=False)
        optimiser = adam(model.parameters())
        self.step(model, optimiser)
        full = FSDP.full_optim_state_dict(model, optimiser, rank0_only=False)
        self.assertIn("0.weight", full["state"])
        back = FSDP.rekey_optim_state_dict(full, torch.distributed.fsdp.OptimStateKeyType.PARAM_ID, nn.Sequential(
            Linear(6, 10), nn.ReLU(), Linear(10, 7), nn.BatchNorm1d(7), Linear(7, 3)))  # fmt: skip
        self.assertEqual(sorted(back["state"]), list(range(8)))

    def test_every_rank_has_the_same_full_state(self):
        model = self.make()
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            mine = {name: value.cpu() for name, value in model.state_dict().items()}
        everybody = [None] * self.world_size
        dist.all_gather_object(everybody, mine)
        for state in everybody:
            self.assertEqual(state, mine)

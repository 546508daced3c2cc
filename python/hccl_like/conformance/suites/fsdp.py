"""FullyShardedDataParallel against DistributedDataParallel and plain training, with the models and checks of torch's FSDP test base."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._comm_hooks import default_hooks
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel as FSDP,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn import Linear
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.testing._internal.common_fsdp import (
    AlwaysWrapNestedWrappedModule,
    DEVICEInitMode,
    DummyDDP,
    FSDPInitMode,
    MixtureOfExperts,
    NestedWrappedModule,
    NestedWrappedModuleWithDelay,
    NonUniformReqGradNWM,
    TransformerWithSharedParams,
    get_full_params,
)

from . import _base, _fsdp_states
from ._base import FsdpTest, needs, on_accelerator

NOT_ON_HOST = "torch's FullyShardedDataParallel does this only on an accelerator"


class Parity(FsdpTest):
    """Several steps of training end as they do under DDP; most of the checking is `_test_fsdp_parity` of torch's base."""

    def parity(self, model=NestedWrappedModule, before=DEVICEInitMode.DEVICE_BEFORE, **options):
        self._test_fsdp_parity(model, FSDPInitMode.RECURSIVE, device_init_mode=before, **_base.on_host(), **options)

    def each_start(self, **options):
        starts = [DEVICEInitMode.DEVICE_BEFORE, DEVICEInitMode.DEVICE_AFTER]
        self.run_subtests({"before": starts}, self.parity, **options)

    def test_full_shard(self):
        self.each_start(sharding_strategy=ShardingStrategy.FULL_SHARD)

    def test_full_shard_with_original_parameters(self):
        self.each_start(sharding_strategy=ShardingStrategy.FULL_SHARD, use_orig_params=True)

    def test_shard_grad_op(self):
        self.each_start(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)

    def test_no_shard(self):
        self.each_start(sharding_strategy=ShardingStrategy.NO_SHARD)

    def test_prefetching(self):
        order = [None, BackwardPrefetch.BACKWARD_PRE, BackwardPrefetch.BACKWARD_POST]
        self.run_subtests({"backward_prefetch": order, "forward_prefetch": [False, True]}, self.parity)

    @needs(on_accelerator, NOT_ON_HOST)
    def test_parameters_kept_on_the_host(self):
        self.parity(before=DEVICEInitMode.DEVICE_NEVER, cpu_offload=CPUOffload(offload_params=True))

    @needs(on_accelerator, NOT_ON_HOST)
    def test_parameters_on_the_wrong_device_are_refused(self):
        self.parity(before=DEVICEInitMode.DEVICE_AFTER, cpu_offload=CPUOffload(offload_params=True))

    def test_a_transformer_with_shared_parameters(self):
        strategies = [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP]
        self.run_subtests({"sharding_strategy": strategies}, self.parity, model=TransformerWithSharedParams)

    def test_every_module_wrapped(self):
        self.parity(AlwaysWrapNestedWrappedModule)

    def test_a_mixture_of_experts(self):
        self.parity(MixtureOfExperts, ref_init_fn=self.by_hand)

    def test_a_mixture_of_experts_that_frees_late(self):
        self.parity(MixtureOfExperts, ref_init_fn=self.by_hand, init_kwargs={"delay_before_free_ms": 50})

    def by_hand(self, module):
        return DummyDDP(module)  # the experts differ from rank to rank; the model sums the other gradients itself

    def test_a_delay_after_the_loss(self):
        self.parity(NestedWrappedModuleWithDelay, init_kwargs={"delay_after_loss_ms": 50})

    def test_a_delay_before_each_reduction(self):
        self.parity(NestedWrappedModuleWithDelay, init_kwargs={"delay_before_reduction_ms": 20})

    def test_gradients_scaled_where_some_ranks_have_none(self):
        self.parity(
            NonUniformReqGradNWM,
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            use_orig_params=True,
            enable_sharded_grad_scaler=True,
            sharded_grad_scaler_kwargs={"device": self.device_type, "init_scale": 2.0**11},
        )

    def test_half_precision_throughout(self):
        self.parity(use_pure_fp16=True, save_model=False, num_iters=1)


def wrap(module, **options):
    """Every Linear and the whole."""
    return FSDP(module, **{"use_orig_params": True, "auto_wrap_policy": ModuleWrapPolicy({Linear}), **_base.on_host(), **options})


class Hybrid(FsdpTest):
    """Two replicas of half the ranks each. HYBRID_SHARD needs to be told of its groups by a mesh or by hand."""

    def hybrid(self, strategy, original=False, **options):
        self._test_fsdp_parity(
            TransformerWithSharedParams,
            FSDPInitMode.RECURSIVE,
            device_init_mode=DEVICEInitMode.DEVICE_BEFORE,
            sharding_strategy=strategy,
            use_orig_params=original,
            device_mesh=self.square("replicate", "shard"),
            **_base.on_host() | options,
        )

    def test_a_mesh_of_two_dimensions(self):
        self.hybrid(ShardingStrategy.HYBRID_SHARD)

    def test_a_mesh_of_two_dimensions_with_original_parameters(self):
        self.hybrid(ShardingStrategy.HYBRID_SHARD, original=True)

    def test_parameters_kept_between_forward_and_backward(self):
        self.hybrid(ShardingStrategy._HYBRID_SHARD_ZERO2)

    def test_the_module_is_moved_to_the_rank_s_device(self):
        self.hybrid(ShardingStrategy.HYBRID_SHARD, device_id=self.device)

    def test_groups_made_by_hand(self):
        half = self.world_size // 2
        rows = [list(range(half)), list(range(half, 2 * half))]
        mine, _ = dist.new_subgroups_by_enumeration(rows)
        across, _ = dist.new_subgroups_by_enumeration([list(pair) for pair in zip(*rows)])
        torch.manual_seed(3)
        plain = nn.Sequential(Linear(6, 10), nn.ReLU(), Linear(10, 3)).to(self.device)
        wrapped = FSDP(deepcopy(plain), (mine, across), sharding_strategy=ShardingStrategy.HYBRID_SHARD,
                       auto_wrap_policy=ModuleWrapPolicy({Linear}), **_base.on_host())  # fmt: skip
        together(self, wrapped, plain)
        self.assertEqual((mine.size(), across.size()), (half, 2))


class BoundHybrid(Hybrid):
    """The same where torch knows the rank's device from the start, so that meshes split the default group."""

    bound = True


def batch(self, step: int, rank: int, features: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(5, features, generator=generator).to(self.device)


def together(self, wrapped, plain, steps: int = 3, make=partial(torch.optim.SGD, lr=0.125, momentum=0.5)):
    """Trains `wrapped` on this rank's data and `plain` on everybody's; both must end the same. Returns the optimisers."""
    one, other = make(wrapped.parameters()), make(plain.parameters())
    for step in range(steps):
        one.zero_grad()
        other.zero_grad()
        wrapped(batch(self, step, self.rank)).square().mean().backward()
        for rank in range(self.world_size):
            (plain(batch(self, step, rank)).square().mean() / self.world_size).backward()
        one.step()
        other.step()
    self.assertEqual(get_full_params(wrapped), list(plain.parameters()), rtol=1e-4, atol=1e-5)
    return one, other


class Training(FsdpTest):
    """What a training loop does beside stepping."""

    def plain(self):
        torch.manual_seed(3)
        return nn.Sequential(Linear(6, 10), nn.ReLU(), nn.Sequential(Linear(10, 7), nn.Tanh()), Linear(7, 3)).to(self.device)

    def pair(self, **options):
        """A model wrapped layer by layer, and one like it."""
        plain = self.plain()
        return wrap(deepcopy(plain), **options), plain

    def test_gradients_gathered_over_several_passes(self):
        strategies = [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD]
        self.run_subtests({"strategy": strategies, "local": [True, False]}, self.accumulates)

    def accumulates(self, strategy, local):
        wrapped, plain = self.pair(sharding_strategy=strategy, use_orig_params=False)
        if local:
            with wrapped.no_sync():
                wrapped(batch(self, 0, self.rank)).square().mean().backward()
        else:
            wrapped(batch(self, 0, self.rank)).square().mean().backward()
        wrapped(batch(self, 1, self.rank)).square().mean().backward()
        for step in range(2):
            for rank in range(self.world_size):
                (plain(batch(self, step, rank)).square().mean() / self.world_size).backward()
        torch.optim.SGD(wrapped.parameters(), lr=1.0).step()
        torch.optim.SGD(plain.parameters(), lr=1.0).step()
        self.assertEqual(get_full_params(wrapped), list(plain.parameters()), rtol=1e-4, atol=1e-5)

    def test_clipping_by_norm(self):
        strategies = [ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD]
        kinds = [1.0, 2.0, 2.5, float("inf")]
        self.run_subtests({"kind": kinds, "strategy": strategies, "original": [True, False]}, self.clips)

    def clips(self, kind, strategy, original):
        wrapped, plain = self.pair(sharding_strategy=strategy, use_orig_params=original)
        reference = DDP(plain)
        for model in (wrapped, reference):
            (30 * model(batch(self, 0, self.rank))).square().mean().backward()
        norm = wrapped.clip_grad_norm_(1.5, norm_type=kind)
        self.assertEqual(norm, nn.utils.clip_grad_norm_(plain.parameters(), 1.5, norm_type=kind), rtol=1e-4, atol=1e-4)
        for model in (wrapped, plain):
            torch.optim.SGD(model.parameters(), lr=0.5).step()
        self.assertEqual(get_full_params(wrapped), list(plain.parameters()), rtol=1e-4, atol=1e-5)

    def test_mixed_precision(self):
        pairs = [(torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)]
        self.run_subtests({"dtypes": pairs, "original": [True, False]}, self.mixes)

    def mixes(self, dtypes, original):
        policy = MixedPrecision(param_dtype=dtypes[0], reduce_dtype=dtypes[1], buffer_dtype=dtypes[0])
        wrapped, plain = self.pair(mixed_precision=policy, use_orig_params=original)
        output = wrapped(batch(self, 0, self.rank))
        self.assertEqual(output.dtype, dtypes[0])
        output.float().square().mean().backward()
        torch.optim.SGD(wrapped.parameters(), lr=0.5).step()
        for rank in range(self.world_size):
            (plain(batch(self, 0, rank)).square().mean() / self.world_size).backward()
        torch.optim.SGD(plain.parameters(), lr=0.5).step()
        after = get_full_params(wrapped)
        self.assertTrue(all(parameter.dtype == torch.float32 for parameter in after))
        self.assertEqual(after, list(plain.parameters()), rtol=0.02, atol=0.02)
        self.assertNotEqual(after[0], self.plain()[0].weight)

    def test_gradients_in_low_precision(self):
        policy = MixedPrecision(param_dtype=torch.bfloat16, keep_low_precision_grads=True)
        wrapped, _ = self.pair(mixed_precision=policy)
        wrapped(batch(self, 0, self.rank)).float().square().mean().backward()
        kinds = {p.grad.dtype for p in wrapped.parameters() if p.grad is not None}
        self.assertEqual(kinds, {torch.bfloat16})

    @needs(on_accelerator, NOT_ON_HOST)
    def test_states_come_from_rank_0(self):
        torch.manual_seed(50 + self.rank)
        wrapped = wrap(nn.Sequential(Linear(6, 4), nn.BatchNorm1d(4)).to(self.device), sync_module_states=True)
        torch.manual_seed(50)
        expected = nn.Sequential(Linear(6, 4), nn.BatchNorm1d(4)).to(self.device)
        self.assertEqual(get_full_params(wrapped), list(expected.parameters()))

    @needs(on_accelerator, NOT_ON_HOST)
    def test_a_model_without_memory_is_filled_from_rank_0(self):
        kind = torch.device("meta") if self.rank else self.device
        with kind:
            torch.manual_seed(3)
            empty = nn.Sequential(Linear(6, 10), nn.ReLU(), Linear(10, 3))
        fill = lambda module: module.to_empty(device=self.device, recurse=False)  # noqa: E731
        wrapped = wrap(empty, sync_module_states=True, param_init_fn=fill if self.rank else None, device_id=self.device)
        sums = [None] * self.world_size
        dist.all_gather_object(sums, [parameter.sum().item() for parameter in get_full_params(wrapped)])
        self.assertEqual(sums, [sums[0]] * self.world_size)

    def test_ignored_modules_stay_whole(self):
        plain = self.plain()
        copy = deepcopy(plain)
        wrapped = wrap(copy, ignored_modules=[copy[3]])
        self.assertEqual(wrapped.module[3].weight.shape, plain[3].weight.shape)
        wrapped(batch(self, 0, self.rank)).square().mean().backward()
        plain(batch(self, 0, self.rank)).square().mean().backward()
        self.assertEqual(wrapped.module[3].weight.grad, plain[3].weight.grad)

    def test_frozen_parameters(self):
        plain = self.plain()
        plain[0].requires_grad_(False)
        wrapped = wrap(deepcopy(plain))
        together(self, wrapped, plain, make=lambda ps: torch.optim.SGD([p for p in ps if p.requires_grad], lr=0.25))

    def test_activations_are_computed_again(self):
        wrapped, plain = self.pair()
        again = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
        apply_activation_checkpointing(wrapped, checkpoint_wrapper_fn=again, check_fn=lambda m: isinstance(m, Linear))
        together(self, wrapped, plain)

    def test_parameters_summoned_and_written_back(self):
        wrapped, plain = self.pair(use_orig_params=False)
        for back in (True, False):
            with FSDP.summon_full_params(wrapped, writeback=back):
                shapes = [tuple(parameter.shape) for parameter in wrapped.parameters()]
                with torch.no_grad():
                    next(wrapped.parameters()).fill_(5.0 if back else 7.0)
            self.assertEqual(shapes, [tuple(parameter.shape) for parameter in plain.parameters()])
            self.assertEqual(get_full_params(wrapped)[0], torch.full_like(plain[0].weight, 5.0))

    def test_parameters_summoned_on_one_rank(self):
        wrapped, plain = self.pair(use_orig_params=False)
        with FSDP.summon_full_params(wrapped, rank0_only=True, writeback=False, offload_to_cpu=on_accelerator()):
            sizes = [parameter.numel() for parameter in wrapped.parameters()]
            if self.rank == 0:
                self.assertEqual([p.cpu() for p in wrapped.parameters()], [p.cpu() for p in plain.parameters()])
            else:
                self.assertLess(sum(sizes), sum(parameter.numel() for parameter in plain.parameters()))

    def test_gradients_summoned(self):
        wrapped, plain = self.pair()
        reference = DDP(plain)
        for model in (wrapped, reference):
            model(batch(self, 0, self.rank)).square().mean().backward()
        with FSDP.summon_full_params(wrapped, with_grads=True):
            got = [parameter.grad.clone() for parameter in wrapped.parameters()]
        self.assertEqual(got, [parameter.grad for parameter in plain.parameters()], rtol=1e-4, atol=1e-6)

    @needs(on_accelerator, NOT_ON_HOST)
    def test_a_communication_hook(self):
        for strategy in (ShardingStrategy.NO_SHARD, ShardingStrategy.FULL_SHARD):
            hooks = [(default_hooks.fp16_compress_hook, torch.float16), (default_hooks.bf16_compress_hook, torch.bfloat16)]
            for hook, _ in hooks:
                wrapped, plain = self.pair(sharding_strategy=strategy)
                wrapped.register_comm_hook(default_hooks.LowPrecisionState(process_group=self.process_group), hook)
                reference = DDP(plain)
                for model in (wrapped, reference):
                    model(batch(self, 0, self.rank)).square().mean().backward()
                    torch.optim.SGD(model.parameters(), lr=0.5).step()
                self.assertEqual(get_full_params(wrapped), list(plain.parameters()), rtol=0.02, atol=0.01)

    def test_an_uneven_parameter_leaves_ranks_without_a_share(self):
        torch.manual_seed(3)
        plain = nn.Sequential(Linear(6, 3, bias=False), Linear(3, 1, bias=False)).to(self.device)
        wrapped = wrap(deepcopy(plain))
        together(self, wrapped, plain)


def load(backend: str, device: str, world_size: int) -> list[type]:
    _base.aim(backend, device, world_size)
    return _base.tests_for(Parity, Hybrid, BoundHybrid, Training, _fsdp_states.States)

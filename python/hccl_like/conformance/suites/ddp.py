"""DistributedDataParallel's hooks, ZeRO, join and local SGD against one process that has all the data."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    ddp_zero_hook,
    debugging_hooks,
    default_hooks,
    optimizer_overlap_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer, _apply_optimizer_in_backward
from torch.distributed.optim.utils import as_functional_optim
from torch.nn.parallel import DistributedDataParallel as DDP

from . import _base
from ._base import GroupTest, needs, on_accelerator

CLOSE = {"rtol": 1e-4, "atol": 1e-6}
ROUGH = {"rtol": 0.02, "atol": 0.005}
STEPS = 3
UNORDERED = (
    "torch runs the callbacks of Futures of CPU tensors when they complete, in an order that differs between ranks: this hook, "
    "which communicates in its callbacks, works where streams keep the order"
)


class DdpTest(GroupTest):
    def plain(self, width=13):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 7), nn.Tanh(), nn.Linear(7, 3)).to(self.device)

    def batch(self, step, rank):
        generator = torch.Generator().manual_seed(100 * step + rank)
        return torch.randn(5, 6, generator=generator).to(self.device)

    def wrap(self, module, **options):
        # A bucket as small as this holds a parameter or two, so there are several in flight.
        return DDP(module, **{"bucket_cap_mb": 0.0003, **options})

    def backward(self, model, step):
        model(self.batch(step, self.rank)).square().mean().backward()

    def alone(self, plain, step):
        for rank in range(self.world_size):
            (plain(self.batch(step, rank)).square().mean() / self.world_size).backward()

    def trains_alike(self, wrapped, plain, one, other, steps=STEPS, **tolerance):
        for step in range(steps):
            one.zero_grad()
            other.zero_grad()
            self.backward(wrapped, step)
            self.alone(plain, step)
            one.step()
            other.step()
        self.assertEqual(list(wrapped.parameters()), list(plain.parameters()), **(tolerance or CLOSE))

    def alike_on_all_ranks(self, model):
        for parameter in model.parameters():
            everybody = [torch.empty_like(parameter) for _ in range(self.world_size)]
            dist.all_gather(everybody, parameter.detach())
            self.assertEqual(everybody, [everybody[0]] * self.world_size)


class Hooks(DdpTest):
    def hooked(self, hook, state=None, steps=STEPS, **tolerance):
        plain = self.plain()
        wrapped = self.wrap(deepcopy(plain))
        wrapped.register_comm_hook(state, hook)
        one, other = (torch.optim.SGD(m.parameters(), lr=0.125) for m in (wrapped, plain))
        self.trains_alike(wrapped, plain, one, other, steps, **tolerance)
        self.alike_on_all_ranks(wrapped)

    def test_all_reduce(self):
        self.hooked(default_hooks.allreduce_hook)

    def test_half_precision(self):
        self.hooked(default_hooks.fp16_compress_hook, **ROUGH)
        self.hooked(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), **ROUGH)

    def test_bfloat16(self):
        # torch lets these two only through for backends whose name it knows; under another name they are as good.
        def compressed(state, bucket):
            return default_hooks.bf16_compress_hook(state, bucket)

        wrapper = default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)

        def compressed_around(state, bucket):
            return wrapper(state, bucket)

        for hook in (compressed, compressed_around):
            self.hooked(hook, dist.group.WORLD, rtol=0.1, atol=0.02)

    def test_hooks_in_c(self):
        for kind, tolerance in ((dist.BuiltinCommHookType.ALLREDUCE, CLOSE), (dist.BuiltinCommHookType.FP16_COMPRESS, ROUGH)):
            plain = self.plain()
            wrapped = self.wrap(deepcopy(plain))
            wrapped._register_builtin_comm_hook(kind)
            one, other = (torch.optim.SGD(m.parameters(), lr=0.125) for m in (wrapped, plain))
            self.trains_alike(wrapped, plain, one, other, **tolerance)

    @needs(on_accelerator, UNORDERED)
    def test_power_sgd(self):
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2, min_compression_rate=1)
        plain = self.plain(24)
        wrapped = self.wrap(deepcopy(plain))
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        optimiser = torch.optim.SGD(wrapped.parameters(), lr=0.05)
        losses = []
        for _ in range(6):
            optimiser.zero_grad()
            loss = wrapped(self.batch(0, self.rank)).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0])
        self.alike_on_all_ranks(wrapped)

    def test_a_hook_that_does_nothing(self):
        wrapped = self.wrap(self.plain())
        wrapped.register_comm_hook(None, debugging_hooks.noop_hook)
        self.backward(wrapped, 0)
        plain = self.plain()
        self.backward(plain, 0)
        self.assertEqual([p.grad for p in wrapped.parameters()], [p.grad for p in plain.parameters()], **CLOSE)

    def test_a_chain_of_futures(self):
        def hook(state, bucket):
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            doubled = work.get_future().then(lambda future: future.value()[0] * 2)
            return doubled.then(lambda future: future.value() / (2 * state))

        self.hooked(hook, self.world_size)

    def test_a_hook_that_exchanges_indirectly(self):
        def hook(state, bucket):
            buffer = bucket.buffer()
            padded = torch.zeros(-(-buffer.numel() // state) * state, device=buffer.device)
            padded[: buffer.numel()] = buffer / state
            part = torch.empty(padded.numel() // state, device=buffer.device)
            dist.reduce_scatter_tensor(part, padded)
            gathered = dist.all_gather_into_tensor(padded, part, async_op=True).get_future()
            return gathered.then(lambda future: padded[: buffer.numel()])

        self.hooked(hook, self.world_size)

    def steps_by_itself(self, wrapped, plain):
        # `wrapped` does what SGD of this rate does, without being told to.
        other = torch.optim.SGD(plain.parameters(), lr=0.125)
        for step in range(STEPS):
            wrapped.zero_grad()
            self.backward(wrapped, step)
            other.zero_grad()
            self.alone(plain, step)
            other.step()
        self.assertEqual(list(wrapped.parameters()), list(plain.parameters()), **CLOSE)

    def test_the_optimiser_steps_in_the_hook(self):
        plain = self.plain()
        wrapped = self.wrap(deepcopy(plain), gradient_as_bucket_view=True)
        functional = optimizer_overlap_hooks._OptimizerHookState(
            functional_optim=as_functional_optim(torch.optim.SGD, 0.125)
        )
        wrapped.register_comm_hook(None, optimizer_overlap_hooks._hook_then_optimizer(default_hooks.allreduce_hook, functional))
        self.steps_by_itself(wrapped, plain)

    def test_the_optimiser_steps_in_the_backward_pass(self):
        plain = self.plain()
        copy = deepcopy(plain)
        _apply_optimizer_in_backward(torch.optim.SGD, copy.parameters(), {"lr": 0.125})
        wrapped = self.wrap(copy)
        self.steps_by_itself(wrapped, plain)


class BoundHooks(Hooks):
    """The same where torch knows the rank's device from the start."""

    bound = True


class Zero(DdpTest):
    def optimiser(self, model, **options):
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01, **options)

    def test_as_one_optimiser_would(self):
        for views in (False, True):
            plain = self.plain()
            wrapped = self.wrap(deepcopy(plain))
            one = self.optimiser(wrapped, parameters_as_bucket_view=views)
            self.trains_alike(wrapped, plain, one, torch.optim.Adam(plain.parameters(), lr=0.01), rtol=1e-3, atol=1e-4)

    def test_each_rank_keeps_a_share(self):
        wrapped = self.wrap(self.plain())
        optimiser = self.optimiser(wrapped)
        self.backward(wrapped, 0)
        optimiser.step()
        held = [None] * self.world_size
        dist.all_gather_object(held, len(optimiser.optim.state))
        self.assertEqual(sum(held), len(list(wrapped.parameters())))

    def test_the_state_gathered_and_loaded(self):
        wrapped = self.wrap(self.plain())
        optimiser = self.optimiser(wrapped)
        self.backward(wrapped, 0)
        optimiser.step()
        optimiser.consolidate_state_dict(to=1)
        held = [optimiser.state_dict() if self.rank == 1 else None]
        dist.broadcast_object_list(held, src=1)
        again = self.optimiser(wrapped)
        again.load_state_dict(held[0])
        self.assertEqual([s["exp_avg"] for s in again.optim.state.values()], [s["exp_avg"] for s in optimiser.optim.state.values()])

    @needs(on_accelerator, UNORDERED)
    def test_a_step_within_the_hook(self):
        for interleaved in (False, True):
            plain = self.plain()
            wrapped = self.wrap(deepcopy(plain), static_graph=True)
            optimiser = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.125)
            make = ddp_zero_hook.hook_with_zero_step_interleaved if interleaved else ddp_zero_hook.hook_with_zero_step
            wrapped.register_comm_hook(None, make(default_hooks.allreduce_hook, wrapped, optimiser))
            for step in range(5):
                self.backward(wrapped, step)
                wrapped.zero_grad()
            self.alike_on_all_ranks(wrapped)
            self.assertNotEqual(next(wrapped.parameters()).detach(), next(plain.parameters()).detach())

    def test_a_group_of_parameters_added_later(self):
        wrapped = self.wrap(self.plain())
        optimiser = self.optimiser(wrapped)
        more = nn.Parameter(torch.ones(5, device=self.device))
        optimiser.add_param_group({"params": [more], "lr": 0.5})
        self.backward(wrapped, 0)
        more.grad = torch.ones_like(more)
        optimiser.step()
        self.assertEqual(more.detach(), torch.full_like(more, 0.5), rtol=1e-3, atol=1e-3)


class Counter(JoinHook):
    def __init__(self, who):
        self.who = who

    def main_hook(self):
        dist.all_reduce(torch.zeros(1, device=self.who.device_))

    def post_hook(self, is_last_joiner):
        self.who.last = is_last_joiner


class Counting(Joinable):
    """A participant of Join with one all-reduce a step."""

    def __init__(self, device):
        super().__init__()
        self.device_, self.total, self.last = device, 0.0, None

    def step(self):
        Join.notify_join_context(self)
        one = torch.ones(1, device=self.device_)
        dist.all_reduce(one)
        self.total += one.item()

    def join_hook(self, **keywords):
        return Counter(self)

    @property
    def join_device(self):
        return self.device_

    @property
    def join_process_group(self):
        return dist.group.WORLD


class UnevenInputs(DdpTest):
    def test_a_rank_that_is_done_goes_on_taking_part(self):
        for divide in (True, False):
            wrapped = self.wrap(self.plain())
            with wrapped.join(divide_by_initial_world_size=divide):
                for step in range(self.rank + 1):
                    wrapped.zero_grad()
                    self.backward(wrapped, step)
            dist.barrier()
            self.alike_on_all_ranks(wrapped.module)

    def test_it_is_said_when_a_rank_is_done_early(self):
        wrapped = self.wrap(self.plain())
        with self.assertRaisesRegex(RuntimeError, "exhausted (all )?inputs"):
            with wrapped.join(throw_on_early_termination=True):
                for step in range(3 if self.rank == 0 else 5):
                    self.backward(wrapped, step)

    def test_ddp_and_zero_together(self):
        wrapped = self.wrap(self.plain())
        optimiser = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=0.01)
        with Join([wrapped, optimiser]):
            for step in range(2 + self.rank):
                optimiser.zero_grad()
                self.backward(wrapped, step)
                optimiser.step()
        self.alike_on_all_ranks(wrapped.module)

    def test_a_participant_of_one_s_own(self):
        counting = Counting(self.device)
        with Join([counting]):
            for _ in range(self.rank + 1):
                counting.step()
        expected = sum(float(self.world_size - step) for step in range(self.rank + 1))
        self.assertEqual((counting.total, counting.last), (expected, self.rank == self.world_size - 1))


class LocalSgd(DdpTest):
    def setup_model(self, subgroup):
        wrapped = self.wrap(self.plain())
        state = post_localSGD_hook.PostLocalSGDState(process_group=None, subgroup=subgroup, start_localSGD_iter=2)
        wrapped.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        return wrapped

    def test_models_are_averaged_now_and_then(self):
        subgroup, _ = dist.new_subgroups(group_size=2)
        wrapped = self.setup_model(subgroup)
        averager = PeriodicModelAverager(period=2, warmup_steps=2)
        optimiser = PostLocalSGDOptimizer(torch.optim.SGD(wrapped.parameters(), lr=0.125), averager)
        for step in range(5):
            optimiser.zero_grad()
            self.backward(wrapped, step)
            optimiser.step()
        self.alike_on_all_ranks(wrapped)

    def test_averages_of_averages(self):
        averager = HierarchicalModelAverager(OrderedDict([(2, 2), (4, self.world_size)]), warmup_steps=1)
        parameter = nn.Parameter(torch.full((3,), float(self.rank), device=self.device))
        parameter.grad = torch.zeros_like(parameter)  # one without a gradient is left out
        seen = []
        for _ in range(5):
            averager.average_parameters([parameter])
            seen.append(parameter[0].item())
        pair = (self.rank // 2) * 2 + 0.5
        # Counted from 0 and not before step 1: step 2 averages pairs, step 4 all.
        self.assertEqual(sorted(set(seen)), sorted({float(self.rank), pair, (self.world_size - 1) / 2}))


def load(backend: str, device: str, world_size: int) -> list[type]:
    _base.aim(backend, device, world_size)
    return _base.tests_for(Hooks, BoundHooks, Zero, UnevenInputs, LocalSgd)

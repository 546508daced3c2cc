"""When, in which types and with which memory fully_shard communicates."""

from __future__ import annotations

import contextlib
from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.testing._internal.common_fsdp import check_sharded_parity, patch_all_gather, patch_all_reduce, patch_reduce_scatter

from ._base import needs, on_accelerator
from ._fsdp2_base import Fsdp2Test, sgd, sharded


class Communication(Fsdp2Test):
    """When and how it communicates."""

    def pair(self, mesh=None, **options):
        plain = self.plain()
        return plain, sharded(deepcopy(plain), mesh or self.mesh(), **options)

    def test_gradients_gathered_over_several_passes(self):
        self.run_subtests({"hybrid": [False, True], "reshard": [True, False]}, self.accumulates)

    def accumulates(self, hybrid, reshard):
        mesh = self.square("replicate", "shard") if hybrid else self.mesh()
        plain, wrapped = self.pair(mesh, reshard_after_forward=reshard)
        for step in range(3):
            last = step == 2
            wrapped.set_is_last_backward(last)
            wrapped.set_reshard_after_backward(last or reshard)
            (wrapped.set_requires_all_reduce if hybrid else wrapped.set_requires_gradient_sync)(last)
            wrapped(self.batch(step, self.rank)).square().mean().backward()
            self.whole_step(plain, step)
        check_sharded_parity(self, plain, wrapped)

    def test_parameters_are_asked_for_early(self):
        plain, wrapped = self.pair()
        parts = list(wrapped)
        parts[0].set_modules_to_forward_prefetch([parts[1], parts[2]])
        parts[2].set_modules_to_backward_prefetch([parts[1], parts[0]])
        handle = wrapped.unshard(async_op=True)
        handle.wait()
        for part in parts:
            part.unshard(async_op=True)
        self.trains_alike(plain, wrapped)

    def test_unshard_and_reshard_by_hand(self):
        plain, wrapped = self.pair()
        for part in (wrapped, *wrapped):
            part.unshard()
        self.assertEqual([tuple(p.shape) for p in wrapped.parameters()], [tuple(p.shape) for p in plain.parameters()])
        self.assertFalse(any(isinstance(p, DTensor) for p in wrapped.parameters()))
        for part in (wrapped, *wrapped):
            part.reshard()
        self.assertTrue(all(isinstance(p, DTensor) for p in wrapped.parameters()))

    def test_collectives_on_the_current_stream(self):
        plain, wrapped = self.pair()
        wrapped._set_unshard_async_op(True)
        self.trains_alike(plain, wrapped)

    def test_memory_from_the_group_s_backend(self):
        plain, wrapped = self.pair()
        group = dist.distributed_c10d._get_default_group()
        backend = group._get_backend(self.device)
        if not backend.supports_tensor_alloc(self.device):
            self.skipTest("the backend allocates no tensors")
        for part in (wrapped, *wrapped):
            part.set_allocate_memory_from_process_group_for_comm(True)
        self.trains_alike(plain, wrapped)

    def test_gradients_divided_by_another_number(self):
        for factor in (2.0, float(self.world_size), 3.0):
            plain, wrapped = self.pair()
            for part in (wrapped, *wrapped):
                part.set_gradient_divide_factor(factor)
            wrapped(self.batch(0, self.rank)).square().mean().backward()
            self.whole_step(plain, 0, lambda out: out.square().mean() * self.world_size / factor)
            check_sharded_parity(self, plain, wrapped)

    def test_sums_only(self):
        plain, wrapped = self.pair()
        for part in (wrapped, *wrapped):
            part.set_force_sum_reduction_for_comms(True)
        self.trains_alike(plain, wrapped)

    def test_a_group_of_its_own_for_gradients(self):
        plain, wrapped = self.pair()
        with contextlib.suppress(NotImplementedError):
            wrapped.set_separate_reduce_scatter_group()
        self.trains_alike(plain, wrapped)

    def test_a_hook_after_the_sum_over_replicas(self):
        plain, wrapped = self.pair(self.square("replicate", "shard"))
        for part in (wrapped, *wrapped):
            part.set_all_reduce_hook(lambda output: output.mul_(2))
        wrapped(self.batch(0, self.rank)).square().mean().backward()
        self.whole_step(plain, 0, lambda out: 2 * out.square().mean())
        check_sharded_parity(self, plain, wrapped)

    def test_as_many_collectives_as_groups(self):
        counts = {"gather": 0, "scatter": 0, "reduce": 0}

        def counted(kind, function):
            def call(*arguments, **keywords):
                counts[kind] += 1
                return function(*arguments, **keywords)

            return call

        _, wrapped = self.pair(self.square("replicate", "shard"))
        gather, scatter, reduce = dist.all_gather_single, dist.reduce_scatter_single, dist.all_reduce
        with (
            patch_all_gather(counted("gather", gather)),
            patch_reduce_scatter(counted("scatter", scatter)),
            patch_all_reduce(counted("reduce", reduce)),
        ):
            wrapped(self.batch(0, self.rank)).sum().backward()
        self.assertEqual(counts, {"gather": 6, "scatter": 3, "reduce": 3})

    @needs(on_accelerator, "there are no events on CPU tensors")
    def test_an_event_after_the_optimiser(self):
        plain, wrapped = self.pair()
        optimiser, other = sgd(wrapped.parameters()), sgd(plain.parameters())
        for step in range(3):
            wrapped(self.batch(step, self.rank)).square().mean().backward()
            self.whole_step(plain, step)
            for one in (optimiser, other):
                one.step()
                one.zero_grad()
            wrapped.set_post_optim_event(torch.accelerator.current_stream().record_event())
        check_sharded_parity(self, plain, wrapped)


class Precision(Fsdp2Test):
    def test_computing_in_low_precision(self):
        kinds = [(torch.bfloat16, None), (torch.bfloat16, torch.float32), (torch.float16, torch.float32), (None, torch.bfloat16),
                 (torch.float16, torch.float16)]  # fmt: skip
        self.run_subtests({"kinds": kinds, "hybrid": [False, True]}, self.mixed)

    def mixed(self, kinds, hybrid):
        policy = MixedPrecisionPolicy(param_dtype=kinds[0], reduce_dtype=kinds[1])
        plain = self.plain()
        mesh = self.square("replicate", "shard") if hybrid else self.mesh()
        wrapped = sharded(deepcopy(plain), mesh, mp_policy=policy)
        out = wrapped(self.batch(0, self.rank))
        self.assertEqual(out.dtype, kinds[0] or torch.float32)
        out.float().square().mean().backward()
        self.whole_step(plain, 0)
        for ours, theirs in zip(wrapped.parameters(), plain.parameters()):
            self.assertEqual(ours.grad.dtype, torch.float32)
            self.assertEqual(ours.grad.full_tensor(), theirs.grad, rtol=0.05, atol=0.01)

    def test_the_output_s_type(self):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32, cast_forward_inputs=True)
        wrapped = sharded(self.plain(), self.mesh(), mp_policy=policy)
        self.assertEqual(wrapped(self.batch(0, self.rank)).dtype, torch.float32)

    def test_a_scaler_of_gradients(self):
        wrapped = sharded(self.plain(), self.mesh())
        optimiser = sgd(wrapped.parameters())
        before = [p.full_tensor().clone() for p in wrapped.parameters()]
        scaler = torch.amp.GradScaler(self.device_type, init_scale=4.0)
        for spoilt in (False, True):
            loss = wrapped(self.batch(0, self.rank)).square().mean()
            scaler.scale(loss * float("inf") if spoilt and self.rank == 0 else loss).backward()
            scaler.unscale_(optimiser)
            found = torch.stack([v for d in (scaler._found_inf_per_device(optimiser),) for v in d.values()]).max()
            self.assertEqual(found.item(), 1.0 if spoilt else 0.0)
            scaler.step(optimiser)
            scaler.update()
            optimiser.zero_grad()
            after = [p.full_tensor().clone() for p in wrapped.parameters()]
            self.assertEqual(any(not torch.equal(a, b) for a, b in zip(before, after)), not spoilt)
            before = after
        self.assertEqual(scaler.get_scale(), 2.0)

    @needs(on_accelerator, "the parameters are on the host anyway")
    def test_parameters_kept_on_the_host(self):
        for pin in (True, False):
            plain = self.plain().cpu()
            offload = CPUOffloadPolicy(pin_memory=pin)
            wrapped = sharded(deepcopy(plain), self.mesh(), offload_policy=offload)
            plain.to(self.device)
            one, other = sgd(plain.parameters()), sgd(wrapped.parameters())
            for step in range(2):
                wrapped(self.batch(step, self.rank)).square().mean().backward()
                self.whole_step(plain, step)
                self.assertEqual({p.grad.device.type for p in wrapped.parameters()}, {"cpu"})
                for optimiser in (one, other):
                    optimiser.step()
                    optimiser.zero_grad()
            for ours, theirs in zip(wrapped.parameters(), plain.parameters()):
                local = ours.to_local()
                expected = distribute_tensor(theirs, self.mesh(), [Shard(0)]).to_local()
                self.assertEqual(local, expected.cpu(), rtol=1e-4, atol=1e-5)

    def test_clipping_by_norm(self):
        for kind in (1.0, 2.0, float("inf")):
            plain = self.plain()
            wrapped = sharded(deepcopy(plain), self.mesh())
            (20 * wrapped(self.batch(0, self.rank))).square().mean().backward()
            self.whole_step(plain, 0, lambda out: (20 * out).square().mean())
            norms = [nn.utils.clip_grad_norm_(m.parameters(), 1.5, norm_type=kind) for m in (wrapped, plain)]
            self.assertEqual(norms[0].full_tensor(), norms[1], rtol=1e-4, atol=1e-4)
            for ours, theirs in zip(wrapped.parameters(), plain.parameters()):
                self.assertEqual(ours.grad.full_tensor(), theirs.grad, rtol=1e-3, atol=1e-5)

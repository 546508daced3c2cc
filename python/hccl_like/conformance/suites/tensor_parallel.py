"""Tensor, sequence and expert parallelism with the Transformer of torch's base, also together with data parallelism."""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.testing._internal.common_fsdp import MLPStack
from torch.testing._internal.distributed._tensor.common_dtensor import (
    MLPModule,
    MLPStacked,
    ModelArgs,
    RMSNormPython,
    Transformer,
    with_comms,
)

from . import _base
from ._base import DTensorTest, FsdpTest

CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class Layers(DTensorTest):
    def value(self, *shape, seed=0):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(self.device)

    def same_gradients(self, one, other):
        for (name, ours), theirs in zip(one.named_parameters(), other.parameters()):
            self.assertEqual(whole(ours.grad), theirs.grad, msg=lambda text, n=name: f"{n}: {text}", **CLOSE)

    def agrees(self, plain, plan, x, mesh=None, into=lambda t: t, out=whole):
        """The parallel model's output, gradients and next step are the plain one's."""
        spread = parallelize_module(deepcopy(plain), mesh or self.mesh(), plan)
        for step in range(2):
            expected, got = plain(x), spread(into(x))
            self.assertEqual(out(got), expected, **CLOSE)
            expected.square().sum().backward()
            out(got).square().sum().backward()
            self.same_gradients(spread, plain)
            for model in (plain, spread):
                optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
                optimiser.step()
                optimiser.zero_grad()
        return spread

    @with_comms
    def test_columns_then_rows(self):
        for bias in (True, False):
            plain = MLPModule(self.device, bias=bias)
            self.agrees(plain, {"net1": ColwiseParallel(), "net2": RowwiseParallel()}, self.value(7, 10))

    @with_comms
    def test_one_exchange_forward_and_none_backward(self):
        spread = parallelize_module(MLPModule(self.device), self.mesh(), {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
        with CommDebugMode() as seen:
            out = spread(self.value(4, 10))
        self.assertEqual(seen.get_total_counts(), 1)
        with CommDebugMode() as seen:
            out.sum().backward()
        self.assertEqual(seen.get_total_counts(), 0)

    @with_comms
    def test_a_batch_cut_up_over_the_ranks(self):
        n = self.world_size
        plan = {"net1": ColwiseParallel(input_layouts=Shard(0)), "net2": RowwiseParallel(output_layouts=Shard(0))}
        plain, x = MLPModule(self.device), self.value(2 * n, 10)
        spread = parallelize_module(deepcopy(plain), self.mesh(), plan)
        mine = spread(x.chunk(n)[self.rank])
        self.assertEqual(mine, plain(x).chunk(n)[self.rank], **CLOSE)
        mine.square().sum().backward()
        plain(x).square().sum().backward()
        self.same_gradients(spread, plain)

    @with_comms
    def test_names_with_wildcards(self):
        plain = MLPStacked(self.device)
        self.agrees(plain, {"layers.*.net1": ColwiseParallel(), "layers.*.net2": RowwiseParallel()}, self.value(5, 10))

    @with_comms
    def test_sizes_that_do_not_divide(self):
        plain = nn.Sequential(nn.Linear(10, 13), nn.ReLU(), nn.Linear(13, 5)).to(self.device)
        for parameter in plain.parameters():
            dist.broadcast(parameter.detach(), 0)
        self.agrees(plain, {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()}, self.value(3, 10))

    @with_comms
    def test_embeddings_by_columns_and_by_rows(self):
        keys = torch.tensor([[0, 15, 3, 9], [7, 7, 8, 1]], device=self.device)
        for style in (ColwiseParallel(output_layouts=Replicate()), RowwiseParallel(input_layouts=Replicate())):
            torch.manual_seed(2)
            plain = nn.Sequential(nn.Embedding(16, 8)).to(self.device)
            self.agrees(plain, {"0": style}, keys)

    @with_comms
    def test_norms_along_the_sequence(self):
        for norm in (nn.LayerNorm(8), nn.LayerNorm(8, bias=False), RMSNormPython(8)):
            plain = nn.Sequential(norm).to(self.device)
            plan = {"0": SequenceParallel(use_local_output=False)}
            x = self.value(2, 2 * self.world_size, 8)
            self.agrees(plain, plan, x, into=lambda t: distribute_tensor(t, self.mesh(), [Shard(1)]))

    @with_comms
    def test_inputs_and_outputs_prepared(self):
        mesh, x = self.mesh(), self.value(2 * self.world_size, 10)
        plain = MLPModule(self.device)
        before = PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())
        after = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
        both = PrepareModuleInputOutput(
            input_layouts=Shard(0), desired_input_layouts=Replicate(), output_layouts=Replicate(), desired_output_layouts=Shard(0)
        )
        mine = x.chunk(self.world_size)[self.rank]
        for styles in ((before, after), (both,)):
            spread = parallelize_module(deepcopy(plain), mesh, {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
            for style in styles:
                spread = parallelize_module(spread, mesh, style)
            self.assertEqual(spread(mine), plain(x).chunk(self.world_size)[self.rank], **CLOSE)

    @with_comms
    def test_a_loss_over_classes_cut_up(self):
        mesh, classes = self.mesh(), 4 * self.world_size
        x = self.value(6, classes)
        target = (torch.arange(6, device=self.device) * 5) % classes
        ignored = target.clone()
        ignored[2] = -100
        weight = torch.arange(classes, device=self.device) / classes
        cases = [(target, "mean", None), (target, "sum", None), (target, "none", None), (ignored, "mean", None), (target, "mean", weight)]
        for labels, kind, classes_weight in cases:
            plain, spread = x.clone().requires_grad_(), distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
            expected = F.cross_entropy(plain, labels, reduction=kind, weight=classes_weight)
            expected.sum().backward()
            with loss_parallel():
                got = F.cross_entropy(spread, labels, reduction=kind, weight=classes_weight)
                got.sum().backward()
            self.assertEqual(whole(got), expected, **CLOSE)
            self.assertEqual(spread.grad.placements, (Shard(1),))
            self.assertEqual(spread.grad.full_tensor(), plain.grad, **CLOSE)


class Models(DTensorTest):
    """The Transformer of torch's base, cut up by its own `parallelize`."""

    def transformer(self, **options):
        torch.manual_seed(0)
        options = {"dropout_p": 0.0, "n_layers": 2, "n_heads": 4, "dim": 16, "vocab_size": 8, **options}
        return Transformer(ModelArgs(**options)).to(self.device)

    def agrees(self, plain, spread, steps=2):
        one, other = (torch.optim.Adam(model.parameters(), lr=0.01) for model in (plain, spread))
        for step in range(steps):
            tokens = torch.randint(8, (4, 8), generator=torch.Generator().manual_seed(step)).to(self.device)
            expected, got = plain(tokens), whole(spread(tokens))
            self.assertEqual(got, expected, **CLOSE)
            for output, optimiser in ((expected, one), (got, other)):
                optimiser.zero_grad()
                output.square().sum().backward()
            # Adam divides small gradients by small numbers; the gradients are compared, and the step only runs.
            for (name, ours), theirs in zip(spread.named_parameters(), plain.parameters()):
                self.assertEqual(whole(ours.grad), theirs.grad, msg=lambda text, n=name: f"{n}: {text}", rtol=1e-3, atol=1e-3)
            one.step()
            with torch.no_grad():
                for ours, theirs in zip(spread.parameters(), plain.parameters()):
                    placed = distribute_tensor(theirs.detach(), ours.device_mesh, ours.placements) if isinstance(ours, DTensor) else theirs
                    ours.copy_(placed)

    @with_comms
    def test_a_transformer(self):
        plain = self.transformer()
        self.agrees(plain, Transformer.parallelize(deepcopy(plain), self.mesh(), False, local_output_for_attn=True))

    @with_comms
    def test_a_transformer_cut_along_the_sequence(self):
        plain = self.transformer()
        self.agrees(plain, Transformer.parallelize(deepcopy(plain), self.mesh(), True, local_output_for_attn=True))

    @with_comms
    def test_a_transformer_whose_weights_are_tied(self):
        plain = self.transformer(weight_tying=True)
        self.agrees(plain, Transformer.parallelize(deepcopy(plain), self.mesh(), False, local_output_for_attn=True))

    @with_comms
    def test_a_transformer_that_computes_activations_again(self):
        plain = self.transformer(checkpoint_activations=True)
        self.agrees(plain, Transformer.parallelize(deepcopy(plain), self.mesh(), True, local_output_for_attn=True))

    @with_comms
    def test_experts_cut_up(self):
        plain = self.transformer(num_experts=4)
        spread = Transformer.parallelize(deepcopy(plain), self.mesh(), False, local_output_for_attn=True)
        tokens = torch.randint(8, (2, 8), generator=torch.Generator().manual_seed(1)).to(self.device)
        expected, got = plain(tokens), whole(spread(tokens))
        self.assertEqual(got, expected, **CLOSE)
        got.square().sum().backward()
        expected.square().sum().backward()
        # Only the last layer's: the base's style for experts leaves the gradient of their input as a part of a sum.
        for ours, theirs in zip(spread.layers[-1].expert_layer.parameters(), plain.layers[-1].expert_layer.parameters()):
            self.assertEqual(ours.grad.full_tensor(), theirs.grad, rtol=1e-3, atol=1e-3)

    @with_comms
    def test_experts_on_different_ranks(self):
        plain = self.transformer(num_experts=self.world_size)
        spread = Transformer.parallelize(deepcopy(plain), None, False, ep_mesh=self.mesh())
        tokens = [torch.randint(8, (2, 8), generator=torch.Generator().manual_seed(r)).to(self.device) for r in range(self.world_size)]
        self.assertEqual(spread(tokens[self.rank]), plain(tokens[self.rank]), **CLOSE)
        spread(tokens[self.rank]).square().sum().backward()
        for part in tokens:
            plain(part).square().sum().backward()
        # Each rank holds the gradients of all tokens for its own expert.
        for ours, theirs in zip(spread.layers[0].expert_layer.parameters(), plain.layers[0].expert_layer.parameters()):
            self.assertEqual(ours.grad.full_tensor(), theirs.grad, rtol=1e-3, atol=1e-3)

    @with_comms
    def test_experts_cut_up_on_different_ranks(self):
        mesh = self.square("experts", "parts")
        plain = self.transformer(num_experts=2)
        spread = Transformer.parallelize(deepcopy(plain), mesh["parts"], False, True, mesh["experts"])
        tokens = torch.randint(8, (2, 8), generator=torch.Generator().manual_seed(1)).to(self.device)
        self.assertEqual(whole(spread(tokens)), plain(tokens), **CLOSE)


class TwoDimensions(FsdpTest):
    """Data parallelism over one side of a mesh, tensor parallelism over the other."""

    width = 16

    def data(self, step, part):
        generator = torch.Generator().manual_seed(10 * step + part)
        return torch.randn(4, 2, self.width, generator=generator).to(self.device)

    def stack(self, sequence=False):
        torch.manual_seed(42)
        return MLPStack(self.width, with_seq_parallel=sequence).to(self.device)

    def trains_alike(self, plain, spread, mesh):
        one, other = (torch.optim.SGD(model.parameters(), lr=0.05) for model in (plain, spread))
        mine = mesh.get_local_rank("data")
        for step in range(3):
            one.zero_grad()
            other.zero_grad()
            spread(self.data(step, mine)).square().mean().backward()
            for part in range(2):
                (plain(self.data(step, part)).square().mean() / 2).backward()
            for optimiser in (one, other):
                optimiser.step()
        for ours, theirs in zip(spread.parameters(), plain.parameters()):
            self.assertEqual(whole(ours), theirs, **CLOSE)

    def test_fully_shard_over_tensor_parallel(self):
        cases = {"sequence": [False, True], "again": [False, True], "reshard": [True, False]}
        self.run_subtests(cases, self.both)

    def both(self, sequence, again, reshard):
        mesh = self.square("data", "parts")
        plain = self.stack(sequence)
        spread = deepcopy(plain).parallelize(mesh["parts"], mesh["data"], again, reshard_after_forward=reshard)
        self.trains_alike(plain, spread, mesh)

    def test_the_old_fsdp_over_tensor_parallel(self):
        mesh = self.square("data", "parts")
        plain = MLPModule(self.device)
        spread = parallelize_module(deepcopy(plain), mesh["parts"], {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
        spread = FSDP(spread, device_mesh=mesh["data"], use_orig_params=True, **_base.on_host())
        self.width = 10
        one, other = (torch.optim.SGD(model.parameters(), lr=0.05) for model in (plain, spread))
        for step in range(2):
            spread(self.data(step, mesh.get_local_rank("data"))).square().mean().backward()
            for part in range(2):
                (plain(self.data(step, part)).square().mean() / 2).backward()
            for optimiser in (one, other):
                optimiser.step()
                optimiser.zero_grad()
        x = self.data(9, 9)
        self.assertEqual(spread(x), plain(x), **CLOSE)

    def test_clipping_over_both(self):
        mesh = self.square("data", "parts")
        plain = self.stack()
        spread = deepcopy(plain).parallelize(mesh["parts"], mesh["data"], False)
        (30 * spread(self.data(0, mesh.get_local_rank("data")))).square().mean().backward()
        for part in range(2):
            ((30 * plain(self.data(0, part))).square().mean() / 2).backward()
        norms = [nn.utils.clip_grad_norm_(model.parameters(), 1.0) for model in (spread, plain)]
        self.assertEqual(whole(norms[0]), norms[1], **CLOSE)

    def test_shards_loaded_into_another_model(self):
        mesh = self.square("data", "parts")
        one, other = (self.stack().parallelize(mesh["parts"], mesh["data"], False) for _ in range(2))
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        other.load_state_dict(one.state_dict())
        for a, b in zip(one.parameters(), other.parameters()):
            self.assertEqual(len(a.placements), 2)
            self.assertEqual(a.full_tensor(), b.full_tensor())

    def test_replicas_beside_tensor_parallel(self):
        mesh = self.square("data", "parts")
        plain = MLPModule(self.device)
        spread = parallelize_module(deepcopy(plain), mesh["parts"], {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
        self.width = 10
        spread(self.data(0, mesh.get_local_rank("data"))).square().mean().backward()
        for parameter in spread.parameters():
            gradient = parameter.grad.to_local()
            dist.all_reduce(gradient, group=mesh["data"].get_group())
            gradient.div_(2)
        for part in range(2):
            (plain(self.data(0, part)).square().mean() / 2).backward()
        for ours, theirs in zip(spread.parameters(), plain.parameters()):
            self.assertEqual(ours.grad.full_tensor(), theirs.grad, **CLOSE)


class BoundTwoDimensions(TwoDimensions):
    """The same where torch knows the rank's device from the start, so that meshes split the default group."""

    bound = True


def load(backend: str, device: str, world_size: int) -> list[type]:
    _base.aim(backend, device, world_size)
    return _base.tests_for(Layers, Models, TwoDimensions, BoundTwoDimensions)

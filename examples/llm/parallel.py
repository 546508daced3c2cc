"""One model over the ranks of a grid: cut by layers, sequences, experts and stages, then data-parallel."""

import contextlib
import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from . import attention, pipeline
from .experts import Experts
from .layout import Grid
from .model import GPT, joined

WHOLE_SEQUENCE = {"input_layouts": Shard(1), "desired_input_layouts": Replicate()}


def cut_layers(model: GPT, mesh) -> None:
    """Tensor parallel; between the layers, each rank has a part of the sequence (sequence parallel).

    Each rank keeps its part of the logits, and `Job.loss` computes the loss from the parts (loss parallel). Experts are not
    cut: each rank of `tp` computes them for the whole sequence.
    """
    parallelize_module(model, mesh, {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1)),
    })
    for block in model.blocks.values():
        plan = {
            "norm_attention": SequenceParallel(),
            "attention": PrepareModuleInput(**WHOLE_SEQUENCE),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.project": RowwiseParallel(output_layouts=Shard(1)),
            "norm_mlp": SequenceParallel(),
        }
        if isinstance(block.mlp, Experts):
            plan["mlp"] = PrepareModuleInputOutput(
                **WHOLE_SEQUENCE, use_local_input=True, output_layouts=Replicate(), desired_output_layouts=Shard(1))
        else:
            plan["mlp"] = PrepareModuleInput(**WHOLE_SEQUENCE)
            plan["mlp.expand"] = ColwiseParallel()
            plan["mlp.contract"] = RowwiseParallel(output_layouts=Shard(1))
        parallelize_module(block, mesh, plan)


def cut_sequences(model: GPT, grid: Grid, form: str, context: int) -> None:
    for block in model.blocks.values():
        block.attention.attend = attention.over(grid.group("cp"), form)
        block.attention.first = grid.place("cp") * context // grid.layout.cp
        if isinstance(block.mlp, Experts):
            block.mlp.sequence_group = grid.group("cp")


def spread_experts(model: GPT, grid: Grid) -> None:
    for block in model.blocks.values():
        bank = block.mlp.bank
        bank.group = grid.group("ep")
        for name, weight in list(bank.named_parameters()):
            part = distribute_tensor(weight.detach(), grid.mesh("ep"), [Shard(0)])
            setattr(bank, name, nn.Parameter(part))


def share_data(model: GPT, grid: Grid, data: str) -> nn.Module:
    """Averages gradients over the ranks that have other data, by the kind of data parallelism asked for."""
    layout = grid.layout
    if layout.data_ranks == 1:
        return model
    if data == "ddp" and layout.data_ranks == layout.ranks and layout.ep == 1:
        return nn.parallel.DistributedDataParallel(
            model, process_group=grid.flat("dp", "cp").get_group(), gradient_as_bucket_view=True)
    # DistributedDataParallel does not combine with DTensors and with all schedules: `replicate` does the same there.
    # A stage keeps its gathered parameters for all micro-batches; the zero-bubble schedule relies on that.
    wrap = functools.partial(fully_shard, reshard_after_forward=layout.pp == 1) if data == "fsdp2" else replicate
    mesh = grid.replicated("dp", "cp", "ep")
    for block in model.blocks.values():
        if layout.ep > 1:
            own = grid.replicated("dp", "cp")
            if own is None:  # nobody else has these experts
                return _share_all_but_experts(model, wrap, mesh)
            wrap(block.mlp.bank, mesh=own)
        wrap(block, mesh=mesh)
    return wrap(model, mesh=mesh)


def _share_all_but_experts(model: GPT, wrap, mesh) -> nn.Module:
    for block in model.blocks.values():
        wrap(block, mesh=mesh, ignored_params=set(block.mlp.bank.parameters()))
    experts = {p for block in model.blocks.values() for p in block.mlp.bank.parameters()}
    return wrap(model, mesh=mesh, ignored_params=experts)


class Job:
    """The model as this rank trains it. `model` has this rank's parameters under the names of the whole model."""

    def __init__(self, model: GPT, grid: Grid, size, args):
        self.grid = grid
        layout = grid.layout
        parts = pipeline.parts(model, grid, args.schedule)
        for part in parts:
            part.to(grid.device)
            if layout.tp > 1:
                cut_layers(part, grid.mesh("tp"))
            if layout.cp > 1:
                cut_sequences(part, grid, args.context, size.context)
            if layout.ep > 1:
                spread_experts(part, grid)
        self.model = joined(parts)
        self._parts = [share_data(part, grid, args.data) for part in parts]
        self._pipeline = None
        if layout.pp > 1:
            rows = args.batch // layout.row_ranks // args.micro_batches
            self._pipeline = pipeline.Pipeline(self._parts, grid, size, rows, args, self.loss)

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean over this rank's bytes."""
        if self.grid.layout.tp > 1:
            logits = DTensor.from_local(logits, self.grid.mesh("tp"), [Shard(2)], run_check=False)
        found = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        # A copy: zero-bubble schedules detach the loss in place, which torch does not allow for a view.
        return found.to_local().clone() if isinstance(found, DTensor) else found

    def learn(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Makes the gradients of a global batch and returns its loss, still on the device."""
        tokens, targets = self.grid.part_of(tokens), self.grid.part_of(targets)
        with loss_parallel() if self.grid.layout.tp > 1 else contextlib.nullcontext():
            if self._pipeline:
                found = self._pipeline.learn(tokens, targets)
            else:
                found = self.loss(self._parts[0](tokens), targets)
                found.backward()
        self._complete_gradients()
        # The ranks of `tp` have the same loss, those of earlier stages have 0.
        total = found.detach() / (self.grid.layout.data_ranks * self.grid.layout.tp)
        if self.grid.layout.ranks > 1:
            dist.all_reduce(total)
        return total

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Without a pipeline and without data parallelism: the logits, whole on every rank."""
        found = self.model(tokens)
        if self.grid.layout.tp > 1:
            found = DTensor.from_local(found, self.grid.mesh("tp"), [Shard(2)], run_check=False).full_tensor()
        return found

    def _complete_gradients(self) -> None:
        """Adds the parts of a norm's gradient, one on each rank of `tp`, once and not in each operator of AdamW."""
        for parameter in self.model.parameters():
            gradient = parameter.grad
            if isinstance(gradient, DTensor) and gradient.placements != parameter.placements:
                parameter.grad = gradient.redistribute(placements=parameter.placements)

"""Fully sharded data parallelism, both of torch's kinds, compared with one process that has all the data."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Shard
from torch.func import functional_call
from torch.nn import Linear

import training
from training import on_ranks

# Four gradients are added in another order than in one process: the last bit may differ, and then grows a little.
IN_ANOTHER_ORDER = {"rtol": 1e-5, "atol": 1e-6}


def mixed_alone(device, ranks, reduce_dtype=torch.float32):
    """One process that computes in bfloat16 and keeps its parameters in float32."""
    plain = training.model(device)
    optimiser = training.descent(plain.parameters())
    for step in range(training.STEPS):
        gradients = []
        for rank in range(ranks):
            low = {name: p.detach().bfloat16().requires_grad_() for name, p in plain.named_parameters()}
            x, target = training.batch(step, rank, device)
            loss = training.loss_of(functional_call(plain, low, x.bfloat16()), target)
            gradients.append(torch.autograd.grad(loss, list(low.values())))
        for parameter, parts in zip(plain.parameters(), zip(*gradients)):
            parameter.grad = sum(part.to(reduce_dtype) / ranks for part in parts).float()
        optimiser.step()
    return plain


# ------------------------------------------------------------------------------------------ FullyShardedDataParallel


def sharded(device, expected, tolerance, **options):
    wrapped = FullyShardedDataParallel(
        training.model("cpu"), device_id=device, auto_wrap_policy=ModuleWrapPolicy({Linear}), **options
    )
    held, whole = (sum(p.numel() for p in m.parameters()) for m in (wrapped, expected))
    assert held < 0.6 * whole or wrapped.sharding_strategy is ShardingStrategy.NO_SHARD
    training.train(wrapped, device)
    with FullyShardedDataParallel.summon_full_params(wrapped, writeback=False):
        training.same_parameters([p.to(device) for p in wrapped.parameters()], expected.parameters(), **tolerance)
    return wrapped


def first_kind(device, strategy, original):
    expected = training.train_alone(device, 2)
    sharded(device, expected, {}, sharding_strategy=ShardingStrategy[strategy], use_orig_params=original)


@pytest.mark.parametrize("original", [True, False], ids=["original parameters", "flat parameters"])
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
def test_the_first_kind_is_what_one_process_would_do(device, strategy, original):
    on_ranks(first_kind, 2, device, strategy, original)


def first_kind_mixed(device):
    policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    sharded(device, mixed_alone(device, 2), {}, mixed_precision=policy, use_orig_params=True)


def test_the_first_kind_computes_in_bfloat16(device):
    on_ranks(first_kind_mixed, 2, device)


def first_kind_offloaded(device):
    sharded(device, training.train_alone(device, 2), {}, cpu_offload=CPUOffload(offload_params=True), use_orig_params=True)


def test_the_first_kind_keeps_parameters_on_the_host(sim):
    on_ranks(first_kind_offloaded, 2, sim)


def first_kind_hybrid(device):
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("replicate", "shard"))
    sharded(device, training.train_alone(device, 4), IN_ANOTHER_ORDER, device_mesh=mesh, use_orig_params=True,
            sharding_strategy=ShardingStrategy.HYBRID_SHARD)  # fmt: skip


@pytest.mark.slow
def test_the_first_kind_in_two_dimensions(device):
    on_ranks(first_kind_hybrid, 4, device)


# ------------------------------------------------------------------------------------------------------ fully_shard


def shard(plain, mesh, **options) -> FSDPModule:
    for layer in plain:
        if isinstance(layer, Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(plain, mesh=mesh, **options)


def full(wrapped):
    assert all(isinstance(parameter, DTensor) for parameter in wrapped.parameters())
    return [parameter.full_tensor() for parameter in wrapped.parameters()]


def second_kind(device, reshard):
    wrapped = shard(training.model(device), init_device_mesh(device.type, (2,)), reshard_after_forward=reshard)
    training.train(wrapped, device)
    training.same_parameters(full(wrapped), training.train_alone(device, 2).parameters())


@pytest.mark.parametrize("reshard", [True, False], ids=["gathered again", "kept"])
def test_the_second_kind_is_what_one_process_would_do(device, reshard):
    on_ranks(second_kind, 2, device, reshard)


def second_kind_ahead(device):
    """Parameters are asked for before they are needed, and gradients are gathered over two micro-batches."""
    wrapped = shard(training.model(device), init_device_mesh(device.type, (2,)))
    layers = [layer for layer in wrapped if isinstance(layer, FSDPModule)]
    layers[0].set_modules_to_forward_prefetch([layers[1], layers[2]])
    layers[2].set_modules_to_backward_prefetch([layers[1], layers[0]])
    wrapped.unshard(async_op=True)
    for micro_batch in range(2):
        wrapped.set_requires_gradient_sync(micro_batch == 1)
        x, target = training.batch(micro_batch, dist.get_rank(), device)
        training.loss_of(wrapped(x), target).backward()
    norm = torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1e9).full_tensor()
    plain = training.model(device)
    gradients = []
    for rank in range(2):
        plain.zero_grad()
        for micro_batch in range(2):
            x, target = training.batch(micro_batch, rank, device)
            training.loss_of(plain(x), target).backward()
        gradients.append([parameter.grad for parameter in plain.parameters()])
    expected = [(a + b) / 2 for a, b in zip(*gradients)]
    training.same_parameters([parameter.grad.full_tensor() for parameter in wrapped.parameters()], expected)
    # The norm of a norm of parts, not of the whole: another rounding.
    torch.testing.assert_close(norm, torch.nn.utils.get_total_norm(expected), rtol=1e-5, atol=0)


def test_the_second_kind_prefetches_accumulates_and_clips(device):
    on_ranks(second_kind_ahead, 2, device)


def second_kind_cut_elsewhere(device):
    def model():
        torch.manual_seed(7)
        return torch.nn.Sequential(Linear(13, 8), torch.nn.ReLU(), Linear(8, 5)).to(device)

    columns = {(5, 8): Shard(1)}
    wrapped = shard(model(), init_device_mesh(device.type, (2,)), shard_placement_fn=lambda p: columns.get(tuple(p.shape)))
    training.train(wrapped, device)
    training.same_parameters(full(wrapped), training.train_alone(device, 2, plain=model()).parameters())


def test_the_second_kind_gathers_rows_and_columns(device):
    on_ranks(second_kind_cut_elsewhere, 2, device)


def second_kind_mixed(device, reduce_dtype, asynchronous):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype)
    wrapped = shard(training.model(device), init_device_mesh(device.type, (2,)), mp_policy=policy)
    wrapped._set_unshard_async_op(asynchronous)  # what is gathered are temporaries that nobody else holds
    training.train(wrapped, device)
    training.same_parameters(full(wrapped), mixed_alone(device, 2, reduce_dtype).parameters())


@pytest.mark.parametrize("asynchronous", [False, True], ids=["", "asynchronously"])
@pytest.mark.parametrize("reduce_dtype", [torch.float32, torch.bfloat16])
def test_the_second_kind_computes_in_bfloat16(device, reduce_dtype, asynchronous):
    on_ranks(second_kind_mixed, 2, device, reduce_dtype, asynchronous)


def second_kind_offloaded(device):
    wrapped = shard(training.model("cpu"), init_device_mesh(device.type, (2,)), offload_policy=CPUOffloadPolicy())
    training.train(wrapped, device)
    assert all(parameter.device.type == "cpu" for parameter in wrapped.parameters())
    training.same_parameters(full(wrapped), [p.cpu() for p in training.train_alone(device, 2).parameters()])


def test_the_second_kind_keeps_parameters_on_the_host(sim):
    on_ranks(second_kind_offloaded, 2, sim)


def second_kind_hybrid(device):
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("replicate", "shard"))
    assert mesh.get_local_rank("shard") == dist.get_rank() % 2
    wrapped = shard(training.model(device), mesh)
    training.train(wrapped, device)
    training.same_parameters(full(wrapped), training.train_alone(device, 4).parameters(), **IN_ANOTHER_ORDER)


@pytest.mark.parametrize("bind", [False, True], ids=["", "with device_id"])
def test_the_second_kind_in_two_dimensions(device, bind):
    if bind and device == "cpu":
        pytest.skip("a group is bound to accelerators only")
    on_ranks(second_kind_hybrid, 4, device, bind=bind)


def second_kind_compiled(device):
    wrapped = shard(training.model(device), init_device_mesh(device.type, (2,)))
    training.train(torch.compile(wrapped, backend="aot_eager"), device, training.descent(wrapped.parameters()))
    training.same_parameters(full(wrapped), training.train_alone(device, 2).parameters())


@pytest.mark.slow
def test_the_second_kind_can_be_compiled(device):
    on_ranks(second_kind_compiled, 2, device)

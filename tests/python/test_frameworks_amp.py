"""Mixed precision with scaled gradients, where all ranks skip what overflows on one, and quantisation-aware training."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.ao import quantization
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

import training
from conftest import slow_after_first
from training import on_ranks

SCALE = 2.0**10
STEPS = 4
OVERFLOWS = 2  # the step in which a gradient is infinite, on one rank alone


def ddp(plain, device):
    return DistributedDataParallel(plain)


def fsdp1(plain, device):
    return FullyShardedDataParallel(plain, device_id=device, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), use_orig_params=True)


def fsdp2(plain, device):
    mesh = init_device_mesh(device.type, (2,))
    for layer in plain:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(plain, mesh=mesh)


def whole(wrapped, kind):
    """Every parameter, as it is on all ranks."""
    if kind is fsdp1:
        with FullyShardedDataParallel.summon_full_params(wrapped, writeback=False):
            return [parameter.detach().clone() for parameter in wrapped.parameters()]
    return [p.full_tensor() if kind is fsdp2 else p.detach().clone() for p in wrapped.parameters()]


class Overflowing(nn.Module):
    """Hands on what the first layer gave. When told to, it makes the gradient of the last column infinite, and with it the last row
    and the last bias of that layer: of all shards only those of rank 1."""

    def __init__(self):
        super().__init__()
        self.now = False

    def forward(self, x):
        if self.now and x.requires_grad:
            x.register_hook(lambda gradient: torch.cat([gradient[:, :-1], gradient[:, -1:] * float("inf")], 1))
        return x


def model(device):
    plain = training.model(device)
    return nn.Sequential(plain[0], Overflowing(), *plain[1:])


def backward(wrapped, scaler, dtype, device, step, rank):
    x, target = training.batch(step, rank, device)
    with torch.autocast(device.type, dtype=dtype):
        loss = training.loss_of(wrapped(x), target)
    scaler.scale(loss).backward()


def overflow_of(model):
    return next(module for module in model.modules() if isinstance(module, Overflowing))


def scaled_alone(device, dtype, clip):
    """One process with the data of two."""
    plain, scaler = model(device), torch.amp.GradScaler(device.type, init_scale=SCALE)
    optimiser = training.descent(plain.parameters())
    for step in range(STEPS):
        parts = []
        for rank in range(2):
            plain.zero_grad()
            overflow_of(plain).now = step == OVERFLOWS and rank == 0
            backward(plain, scaler, dtype, device, step, rank)
            parts.append([parameter.grad for parameter in plain.parameters()])
        for parameter, one, other in zip(plain.parameters(), *parts):
            parameter.grad = one / 2 + other / 2
        if clip:
            scaler.unscale_(optimiser)
            nn.utils.clip_grad_norm_(plain.parameters(), clip)
        scaler.step(optimiser)
        scaler.update()
    return list(plain.parameters()), scaler.get_scale()


def scaled(device, kind, dtype, clip=None):
    plain = model(device)
    layer = overflow_of(plain)
    wrapped = kind(plain, device)
    make = ShardedGradScaler if kind is fsdp1 else torch.amp.GradScaler
    scaler = make(device.type, init_scale=SCALE)
    optimiser = training.descent(wrapped.parameters())
    for step in range(STEPS):
        before = whole(wrapped, kind)
        layer.now = step == OVERFLOWS and dist.get_rank() == 0
        optimiser.zero_grad()
        backward(wrapped, scaler, dtype, device, step, dist.get_rank())
        if clip:
            scaler.unscale_(optimiser)
            (wrapped.clip_grad_norm_ if kind is fsdp1 else lambda n: nn.utils.clip_grad_norm_(wrapped.parameters(), n))(clip)
        scaler.step(optimiser)
        scaler.update()
        moved = not all(one.equal(other) for one, other in zip(before, whole(wrapped, kind), strict=True))
        assert moved == (step != OVERFLOWS), f"step {step}"
        assert scaler.get_scale() == (SCALE if step < OVERFLOWS else SCALE / 2), f"step {step}"
    expected, scale = scaled_alone(device, dtype, clip)
    assert scaler.get_scale() == scale
    # Several ranks round the norm otherwise than one process does, and clipping scales every gradient by it.
    training.same_parameters(whole(wrapped, kind), expected, **({"rtol": 1e-5, "atol": 1e-7} if clip else {}))


@pytest.mark.parametrize("dtype", slow_after_first([torch.float16, torch.bfloat16]), ids=["float16", "bfloat16"])
@pytest.mark.parametrize("kind", [ddp, fsdp1, fsdp2])
def test_a_step_that_overflows_on_one_rank_is_skipped_by_all(device, kind, dtype):
    on_ranks(scaled, 2, device, kind, dtype)


@pytest.mark.parametrize("kind", [ddp, fsdp1, fsdp2])
def test_gradients_are_clipped_after_their_scale_is_taken_off(device, kind):
    on_ranks(scaled, 2, device, kind, torch.float16, 0.25)


def prepared(device):
    """Its fake quantisers keep the least and the greatest value seen in buffers, which DDP takes from rank 0 at every step."""
    plain = nn.Sequential(quantization.QuantStub(), *training.model("cpu"), quantization.DeQuantStub())
    plain.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return quantization.prepare_qat(plain).to(device)


def set_buffers(model, values):
    for buffer, value in zip(model.buffers(), values, strict=True):
        buffer.resize_(value.shape).copy_(value)


def prepared_alone(device):
    """One process trains on the data of two ranks. DDP sends the buffers of rank 0 to both before each step."""
    plain = prepared(device)
    optimiser = training.descent(plain.parameters())
    for step in range(training.STEPS):
        before, parts = [buffer.clone() for buffer in plain.buffers()], []
        for rank in (1, 0):  # and the buffers stay those of rank 0
            set_buffers(plain, before)
            x, target = training.batch(step, rank, device)
            parts.append(torch.autograd.grad(training.loss_of(plain(x), target), list(plain.parameters())))
        for parameter, one, other in zip(plain.parameters(), *parts, strict=True):
            parameter.grad = one / 2 + other / 2
        optimiser.step()
    return plain


def aware_of_quantisation(device):
    wrapped = DistributedDataParallel(prepared(device))
    training.train(wrapped, device)
    expected = prepared_alone(device)
    training.same_parameters(wrapped, expected)
    if dist.get_rank() == 0:
        training.same_parameters(wrapped.module.buffers(), expected.buffers())
    x, _ = training.batch(0, 0, device)
    wrapped.eval()(x)  # all ranks have the buffers of rank 0 again
    quantised = quantization.convert(wrapped.module.cpu().eval())
    return quantised(x.cpu()).tolist()


def test_quantisation_aware_training_is_what_one_process_would_do(device):
    one, other = on_ranks(aware_of_quantisation, 2, device)
    assert one == other

"""DistributedDataParallel, its communication hooks and ZeRO, compared with one process that has all the data."""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import training
from training import on_ranks


def as_one_process(device, options):
    wrapped = DistributedDataParallel(training.model(device), bucket_cap_mb=0.001, **options)
    training.train(wrapped, device)
    training.same_parameters(wrapped, training.train_alone(device, dist.get_world_size()))


@pytest.mark.parametrize("options", [
    pytest.param({}, id="plain"),
    pytest.param({"gradient_as_bucket_view": True}, id="bucket view"),
    pytest.param({"find_unused_parameters": True}, id="find unused"),
    pytest.param({"static_graph": True}, id="static graph"),
])  # fmt: skip
def test_it_is_what_one_process_would_do(device, options):
    on_ranks(as_one_process, 2, device, options)


def as_one_process_of_four(device):
    # Four numbers are added in some order: the last bit may differ.
    wrapped = DistributedDataParallel(training.model(device))
    training.train(wrapped, device)
    training.same_parameters(wrapped, training.train_alone(device, 4), rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_four_ranks_are_as_good_as_two(device):
    on_ranks(as_one_process_of_four, 4, device)


class Fork(nn.Module):
    """Uses one of two layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.ways = nn.ModuleList([nn.Linear(13, 5), nn.Linear(13, 5)])

    def forward(self, x, way):
        return self.ways[way](x)


def ways_differ(device):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    wrapped = DistributedDataParallel(Fork().to(device), find_unused_parameters=True)
    x, target = training.batch(0, rank, device)
    training.loss_of(wrapped(x, rank), target).backward()
    for way in range(2):
        plain = Fork().to(device)
        x, target = training.batch(0, way, device)
        training.loss_of(plain(x, way), target).backward()
        expected = [parameter.grad / ranks for parameter in plain.ways[way].parameters()]
        training.same_parameters([p.grad for p in wrapped.module.ways[way].parameters()], expected)
    # Now nobody uses the second layer: what it had stays.
    wrapped.zero_grad(set_to_none=True)
    training.loss_of(wrapped(x, 0), target).backward()
    assert all(parameter.grad is None for parameter in wrapped.module.ways[1].parameters())


def test_a_parameter_may_be_unused_on_some_ranks_or_on_all(device):
    on_ranks(ways_differ, 2, device)


def ends_early(device):
    """Rank 1 has one batch, rank 0 three: from then on rank 0's gradients count half."""
    rank = dist.get_rank()
    wrapped = DistributedDataParallel(training.model(device))
    optimiser = training.descent(wrapped.parameters())
    with Join([wrapped]):
        for step in range(3 if rank == 0 else 1):
            x, target = training.batch(step, rank, device)
            optimiser.zero_grad()
            training.loss_of(wrapped(x), target).backward()
            optimiser.step()
    plain = training.model(device)
    optimiser = training.descent(plain.parameters())
    for step in range(3):
        optimiser.zero_grad()
        for with_data in range(2 if step == 0 else 1):
            x, target = training.batch(step, with_data, device)
            (training.loss_of(plain(x), target) / 2).backward()
        optimiser.step()
    training.same_parameters(wrapped, plain)  # Join gives the final parameters to the rank that ended early


def test_join_lets_a_rank_end_early(device):
    on_ranks(ends_early, 2, device)


def compressed(device, hook, tolerance):
    wrapped = DistributedDataParallel(training.model(device), bucket_cap_mb=0.001)
    wrapped.register_comm_hook(None, hook)
    training.train(wrapped, device)
    training.same_parameters(wrapped, training.train_alone(device, 2), rtol=0, atol=tolerance)


# A gradient here is below 1, rounded twice to 11 or 8 bits, and three steps of 1/8 add up.
@pytest.mark.parametrize("hook, tolerance", [
    pytest.param(default_hooks.allreduce_hook, 0, id="allreduce"),
    pytest.param(default_hooks.fp16_compress_hook, 2**-11, id="float16"),
    pytest.param(default_hooks.bf16_compress_hook, 2**-8, id="bfloat16"),
])  # fmt: skip
def test_hooks_that_compress_are_exact_up_to_their_rounding(device, hook, tolerance):
    on_ranks(compressed, 2, device, hook, tolerance)


def with_power_sgd(device):
    state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=4, start_powerSGD_iter=2,
                                        min_compression_rate=1)
    wrapped = DistributedDataParallel(training.model(device))
    wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimiser = training.descent(wrapped.parameters())
    x, target = training.batch(0, dist.get_rank(), device)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = training.loss_of(wrapped(x), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    total = torch.stack(losses)
    dist.all_reduce(total)
    assert total[-1] < 0.8 * total[0]
    for parameter in wrapped.parameters():
        others = [torch.empty_like(parameter) for _ in range(2)]
        dist.all_gather(others, parameter.detach())
        training.same_parameters([others[0]], [others[1]])


def test_power_sgd_calls_collectives_from_its_callbacks_and_does_not_deadlock(device):
    on_ranks(with_power_sgd, 2, device)


def with_zero(device, overlap):
    wrapped = DistributedDataParallel(training.model(device), gradient_as_bucket_view=overlap)
    optimiser = ZeroRedundancyOptimizer(
        wrapped.parameters(), optimizer_class=torch.optim.SGD, lr=training.LEARNING_RATE, momentum=0.5,
        parameters_as_bucket_view=overlap,
    )  # fmt: skip
    training.train(wrapped, device, optimiser)

    def with_momentum(parameters):
        return torch.optim.SGD(parameters, lr=training.LEARNING_RATE, momentum=0.5)

    training.same_parameters(wrapped, training.train_alone(device, 2, with_momentum))
    optimiser.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        assert len(optimiser.state_dict()["state"]) == 6


@pytest.mark.parametrize("views", [False, True], ids=["", "bucket views"])
def test_zero_shards_the_optimiser_and_changes_nothing(device, views):
    on_ranks(with_zero, 2, device, views)


def under_autocast(device):
    wrapped = DistributedDataParallel(training.model(device))
    x, target = training.batch(0, dist.get_rank(), device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = training.loss_of(wrapped(x), target)
    loss.backward()
    gradients = [parameter.grad for parameter in wrapped.parameters()]
    parts = []
    for rank in range(2):
        plain = training.model(device)
        x, target = training.batch(0, rank, device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = training.loss_of(plain(x), target)
        parts.append(torch.autograd.grad(loss, list(plain.parameters())))
    training.same_parameters(gradients, [a / 2 + b / 2 for a, b in zip(*parts)])


def test_autocast_changes_nothing_about_it(device):
    on_ranks(under_autocast, 2, device)


def compiled(device):
    wrapped = DistributedDataParallel(training.model(device))
    training.train(torch.compile(wrapped, backend="aot_eager"), device, training.descent(wrapped.parameters()))
    training.same_parameters(wrapped, training.train_alone(device, 2))


@pytest.mark.slow
def test_it_can_be_compiled(device):
    on_ranks(compiled, 2, device)


def in_detail(device, store):
    """torch checks every call of all ranks against each other before it is made."""
    dist.destroy_process_group()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("hccl-like", init_method=f"file://{store}", rank=int(os.environ["RANK"]), world_size=2)
    as_one_process(device, {})
    assert type(dist.group.WORLD._get_backend(device)).__name__ == "_ProcessGroupWrapper"
    with pytest.raises(RuntimeError, match=r"Detected mismatch between collectives on ranks[^$]*TensorShape=\[4\]"):
        dist.all_reduce(torch.ones(3 + dist.get_rank(), device=device))


def test_torchs_detailed_checks_wrap_it(device, tmp_path):
    on_ranks(in_detail, 2, device, tmp_path / "store")

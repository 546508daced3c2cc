"""torch.compile and our group: collectives inside compiled functions, compiled DDP and FSDP2."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from training import batch, descent, loss_of, model, on_ranks, same_parameters, train, train_alone

# Inductor makes code for host tensors; for an accelerator its vendor has to add that.
COMPILERS = [("cpu", "eager"), ("cpu", "aot_eager"), ("cpu", "inductor"), ("sim", "eager"), ("sim", "aot_eager")]


def with_all(quick=None):
    """Runs a test with every compiler; all but `quick` are slow: each takes three to thirty seconds."""
    cases = [pytest.param(c, id="-".join(c), marks=() if c == quick else pytest.mark.slow) for c in COMPILERS]
    return pytest.mark.parametrize("target", cases, indirect=True)


@pytest.fixture
def target(request, tmp_path):
    """(device, compiler); compiled code is kept for this test alone, and each rank compiles its own."""
    if request.param[0] == "sim" and not hasattr(torch, "sim"):
        pytest.skip("the simulated accelerator is not installed: pip install ./simulator")
    return *request.param, {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def numbers(device, *shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32).view(shape) + 100 * dist.get_rank()).to(device)


def functional_style(x):
    world = dist.group.WORLD
    summed = functional.all_reduce(x * 2, "sum", world)
    gathered = functional.all_gather_tensor(x + 1, 0, world)
    scattered = functional.reduce_scatter_tensor(gathered * 3, "sum", 0, world)
    exchanged = functional.all_to_all_single(x - 1, None, None, world)
    several = functional.all_reduce_coalesced([x, x[0]], "max", world)
    return summed + scattered, gathered.sum(), exchanged * 2, several[0] - several[1]


def ordinary_style(x):
    summed = x * 2
    dist.all_reduce(summed)
    gathered = x.new_empty(2 * x.size(0), x.size(1))
    dist.all_gather_into_tensor(gathered, x + 1)
    scattered = torch.empty_like(x)
    dist.reduce_scatter_tensor(scattered, gathered * 3)
    exchanged = torch.empty_like(x)
    dist.all_to_all_single(exchanged, x - 1)
    return summed + scattered, gathered.sum(), exchanged * 2


def with_gradients(x):
    world = dist.group.WORLD
    gathered = functional.all_gather_tensor_autograd(x * x, 0, world)
    scattered = functional.reduce_scatter_tensor_autograd(gathered * 2, "sum", 0, world)
    return functional.all_to_all_single_autograd(scattered * x, None, None, world)


def compiled_functions(device, compiler):
    x = numbers(device, 4, 3)
    for function in (functional_style, ordinary_style):
        expected = function(x)
        compiled = torch.compile(function, backend=compiler, fullgraph=True)
        for _ in range(2):
            for got, wanted in zip(compiled(x), expected, strict=True):
                assert torch.as_tensor(got).equal(wanted), function.__name__
    plain, other = (numbers(device, 4, 3).requires_grad_() for _ in range(2))
    with_gradients(plain).sum().backward()
    torch.compile(with_gradients, backend=compiler, fullgraph=True)(other).sum().backward()
    assert other.grad.equal(plain.grad)


@with_all(quick=("sim", "aot_eager"))
def test_collectives_in_compiled_functions(target):
    device, compiler, environment = target
    on_ranks(compiled_functions, 2, device, compiler, timeout=400, environment=environment)


def compiled_ddp(device, compiler):
    parallel = DistributedDataParallel(model(device))
    train(torch.compile(parallel, backend=compiler), device)
    tolerance = {} if compiler != "inductor" else {"rtol": 1e-5, "atol": 1e-6}
    same_parameters(parallel.module, train_alone(device, 2), **tolerance)


@with_all(quick=("cpu", "inductor"))
def test_compiled_ddp(target):
    device, compiler, environment = target
    on_ranks(compiled_ddp, 2, device, compiler, timeout=400, environment=environment)


def compiled_fsdp(device, compiler):
    sharded, mesh = model(device), init_device_mesh(device.type, (2,))
    for layer in sharded:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    optimiser = descent(sharded.parameters())
    compiled = torch.compile(sharded, backend=compiler)
    for step in range(3):
        x, wanted = batch(step, dist.get_rank(), device)
        optimiser.zero_grad()
        loss_of(compiled(x), wanted).backward()
        optimiser.step()
    expected = list(train_alone(device, 2).parameters())
    tolerance = {"rtol": 1e-5, "atol": 1e-6}
    for got, wanted in zip(sharded.parameters(), expected, strict=True):
        torch.testing.assert_close(got.full_tensor(), wanted, **tolerance)


@with_all()
def test_compiled_fsdp2(target):
    device, compiler, environment = target
    on_ranks(compiled_fsdp, 2, device, compiler, timeout=400, environment=environment)


def waits_are_kept(device):
    """The graph waits for each collective before its result is used, and not before."""
    from torch._dynamo.testing import AotEagerAndRecordGraphs

    recorder = AotEagerAndRecordGraphs()

    def function(x):
        summed = functional.all_reduce(x, "sum", dist.group.WORLD)
        meanwhile = x * 3
        return summed + meanwhile

    x = numbers(device, 4, 3)
    result = torch.compile(function, backend=recorder, fullgraph=True)(x)
    assert result.equal(sum(100.0 * r - 100.0 * dist.get_rank() + x for r in range(2)) + x * 3)
    code = recorder.fw_graphs[0].code
    assert code.index("all_reduce") < code.index("wait_tensor")
    assert "hccl" not in code, "a graph names the group, not the backend"


@pytest.mark.slow
def test_graphs_wait_for_collectives():
    on_ranks(waits_are_kept, 2, "cpu")

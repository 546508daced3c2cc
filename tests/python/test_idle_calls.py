"""A device some of whose runtime's calls wait until its streams are idle, and keep other threads out meanwhile, as CUDA's do."""

import pytest
import torch
import torch.distributed as dist

import values
from hccl_like import _extension
from ranks import run_ranks

pytestmark = pytest.mark.usefixtures("sim")

ENVIRONMENT = {"TORCH_SIM_DISCRETE": "1", "TORCH_SIM_FLAWS": "idle-calls"}
LARGE = 3 << 18


KEPT = []


def idle_call():
    """Allocates pinned memory that was not used before."""
    KEPT.append(torch.empty(100, pin_memory=True))


def total(size, count=LARGE):
    return torch.full((count,), size * (size + 1) / 2)


def synchronous(rank, size):
    for _ in range(5):
        tensor = torch.full((LARGE,), float(rank + 1), device="sim")
        dist.all_reduce(tensor)
        idle_call()
        assert values.equal(tensor, total(size))


def asynchronous(rank, size):
    tensors = [torch.full((LARGE + i,), float(rank + 1), device="sim") for i in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    idle_call()
    for work in works:
        work.wait()
        idle_call()
    for i, tensor in enumerate(tensors):
        assert values.equal(tensor, total(size, LARGE + i))


def coalesced(rank, size):
    """A large and a small tensor in one call."""
    for _ in range(3):
        tensors = [torch.full((count,), float(rank + 1), device="sim") for count in (LARGE, 10)]
        with dist._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        idle_call()
        for tensor in tensors:
            assert values.equal(tensor, total(size, tensor.numel()))


def messages(rank, size):
    for _ in range(5):
        tensor = torch.full((LARGE,), float(rank), device="sim")
        if rank == 0:
            dist.send(tensor + 1, 1)
        else:
            dist.recv(tensor, 0)
        idle_call()
        assert values.equal(tensor, torch.full((LARGE,), float(rank)))


def small_then_large(rank, size):
    for _ in range(5):
        small, large = (torch.full((count,), float(rank + 1), device="sim") for count in (10, LARGE))
        dist.all_reduce(small)
        work = dist.all_reduce(large, async_op=True)
        idle_call()
        work.wait()
        assert values.equal(small, total(size, 10)) and values.equal(large, total(size))
    described = _extension.load().describe_device(torch.device("sim", 0))
    assert "small calls in stream order, large calls wait on the host" in described, described


@pytest.mark.parametrize("body", [synchronous, asynchronous, coalesced, messages, small_then_large])
def test_no_call_hangs(body):
    run_ranks(body, 2, environment=ENVIRONMENT, timeout=40)


def of_hosts(rank, size):
    tensor = torch.full((LARGE,), float(rank + 1), device="sim")
    for _ in range(2):
        work = dist.all_reduce(tensor.fill_(rank + 1), async_op=True)
        idle_call()
        work.wait()
        idle_call()
        assert values.equal(tensor, total(size))


def test_nor_does_one_between_hosts(make_hosts):
    run_ranks(of_hosts, 4, hosts=make_hosts(2), environment=ENVIRONMENT, timeout=60)

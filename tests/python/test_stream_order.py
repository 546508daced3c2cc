"""Calls on device tensors are ordered with the streams and never block the host."""

import threading
import time

import pytest
import torch
import torch.distributed as dist

import values
from ranks import run_ranks
from streams import Gate

QUEUED_MS = 200
# A call that waited for the queued work would take 200 ms; one that does not takes far less on a busy machine too.
AT_ONCE = 0.1


def elapsed(action):
    begin = time.monotonic()
    result = action()
    return time.monotonic() - begin, result


def synchronous_call(rank, size):
    tensor = torch.full((1000,), float(rank + 1), device="sim")
    dist.all_reduce(tensor)  # the first call of a device finds out what it can do
    torch.sim.synchronize()
    tensor.fill_(rank + 1)
    torch.sim._sleep(QUEUED_MS)
    tensor.fill_(2.0 * (rank + 1))  # queued: an operator of the fall-back would wait for the stream here
    took, _ = elapsed(lambda: dist.all_reduce(tensor))
    assert took < AT_ONCE, f"the call took {took:.3f} s"
    assert values.equal(tensor, torch.full((1000,), float(size * (size + 1))))


def asynchronous_call(rank, size):
    tensor = torch.full((1000,), float(rank + 1), device="sim")
    dist.all_reduce(tensor, async_op=True).wait()
    torch.sim.synchronize()
    tensor.fill_(rank + 1)
    torch.sim._sleep(QUEUED_MS)
    tensor.fill_(2.0 * (rank + 1))  # queued: an operator of the fall-back would wait for the stream here
    took, work = elapsed(lambda: dist.all_reduce(tensor, async_op=True))
    assert took < AT_ONCE, f"the call took {took:.3f} s"
    assert not work.is_completed()
    took, _ = elapsed(work.wait)
    assert took < AT_ONCE, f"wait() took {took:.3f} s"
    tensor.add_(1)
    assert values.equal(tensor, torch.full((1000,), float(size * (size + 1) + 1)))
    assert work.is_completed() and work.is_success()


def other_streams(rank, size):
    """A call made on a side stream is ordered with that stream, and wait() with the one it is called on."""
    side, third = torch.sim.Stream(), torch.sim.Stream()
    tensor = torch.zeros(500, device="sim")
    torch.sim.synchronize()
    with torch.sim.stream(side):
        torch.sim._sleep(QUEUED_MS)
        tensor.fill_(rank + 1)
        work = dist.all_reduce(tensor, async_op=True)
    with torch.sim.stream(third):
        work.wait()
        copy = tensor.clone()
    third.synchronize()
    assert values.equal(copy, torch.full((500,), size * (size + 1) / 2))


def future(rank, size):
    """The Future is complete from the start and orders what follows."""
    tensor = torch.zeros(500, device="sim")
    dist.all_reduce(tensor)
    torch.sim.synchronize()
    torch.sim._sleep(QUEUED_MS)
    tensor.fill_(rank + 1)
    took, same = elapsed(
        lambda: dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0])
    )
    assert took < AT_ONCE, f"took {took:.3f} s"
    assert same.done()
    assert values.equal(same.wait(), torch.full((500,), size * (size + 1) / 2))
    # What a callback computes comes after the call, whose stream is not the callback's.
    torch.sim._sleep(QUEUED_MS)
    tensor.fill_(rank + 1)
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    assert values.equal(doubled.wait(), torch.full((500,), float(size * (size + 1))))


def temporaries(rank, size):
    """Strided tensors go through temporaries, in stream order too, which live until the device is done."""
    base = torch.zeros(64, 64, device="sim")
    dist.all_reduce(base)
    torch.sim.synchronize()
    torch.sim._sleep(QUEUED_MS)
    base.fill_(rank + 1)
    took, work = elapsed(lambda: dist.all_reduce(base.t()[::2], async_op=True))
    assert took < AT_ONCE, f"took {took:.3f} s"
    work.wait()
    assert values.equal(base.t()[::2], torch.full((32, 64), size * (size + 1) / 2))
    assert values.equal(base.t()[1::2], torch.full((32, 64), float(rank + 1)))


def dropped_work(rank, size):
    """Neither the work nor the tensors need to be kept by the caller."""
    results = []
    torch.sim._sleep(QUEUED_MS)
    for i in range(20):
        tensor = torch.full((1000 + i,), float(rank + 1), device="sim")
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        results.append(tensor.sum())
        del tensor, work
    for i, result in enumerate(results):
        assert result.item() == (1000 + i) * size * (size + 1) / 2


def barrier_waits_on_the_host(rank, size):
    torch.zeros(1, device="sim")
    torch.sim.synchronize()
    torch.sim._sleep(QUEUED_MS)
    took, _ = elapsed(lambda: dist.barrier(device_ids=[0]))
    assert took > QUEUED_MS / 1000 * 0.9, f"the barrier did not wait for the device: {took:.3f} s"


def wait_with_timeout_blocks(rank, size):
    from datetime import timedelta

    tensor = torch.ones(10, device="sim")
    dist.all_reduce(tensor)
    torch.sim.synchronize()
    torch.sim._sleep(QUEUED_MS)
    work = dist.all_reduce(tensor, async_op=True)
    with pytest.raises(dist.DistBackendError, match="not over after the 20 ms"):
        work.wait(timedelta(milliseconds=20))
    assert work.wait(timedelta(seconds=20))
    assert work.is_completed()


def overlapping_receives(rank, size):
    """A receive that waits for its sender does not hold up the next one."""
    if rank == 0:
        late, early = torch.zeros(100_000, device="sim"), torch.zeros(100_000, device="sim")
        first = dist.irecv(late, 1)
        second = dist.irecv(early, 2)
        second.wait()
        assert early.sum().item() == 200_000
        dist.send(torch.ones(1, device="sim"), 1)
        first.wait()
        assert late.sum().item() == 100_000
    elif rank == 1:
        dist.recv(torch.zeros(1, device="sim"), 0)
        dist.send(torch.full((100_000,), 1.0, device="sim"), 0)
    else:
        dist.send(torch.full((100_000,), 2.0, device="sim"), 0)
    torch.sim.synchronize()


@pytest.mark.parametrize(
    "case",
    [synchronous_call, asynchronous_call, other_streams, future, temporaries, dropped_work, barrier_waits_on_the_host,
     wait_with_timeout_blocks],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_keeps_the_order_of_streams(case, sim):
    run_ranks(case, 2)


def test_messages_do_not_wait_for_each_other(sim):
    run_ranks(overlapping_receives, 3)


def two_groups_interleaved(rank, size, device):
    """Sixteen calls under way, on two groups, in another order on each rank; each group sees its own in order."""
    other = dist.new_group(list(range(size)))
    tensors = {}
    works = []
    order = ["a"] * 8 + ["b"] * 8 if rank % 2 else ["b", "a"] * 8
    for group_name in order:
        number = sum(1 for name, _ in tensors if name == group_name)
        tensor = values.plain(rank, 5000 + number, torch.float32).to(device)
        tensors[group_name, number] = tensor
        works.append(dist.all_reduce(tensor, group=other if group_name == "b" else None, async_op=True))
    for work in works if rank % 3 else reversed(works):
        work.wait()
    for (_, number), tensor in tensors.items():
        expected = values.total([values.plain(r, 5000 + number, torch.float32) for r in range(size)])
        assert values.equal(tensor, expected)


@pytest.mark.parametrize("size", [2, 4])
def test_two_groups_do_not_hold_each_other_up(device, transport, size):
    run_ranks(two_groups_interleaved, size, device, environment=transport)


def powersgd(rank, size, device):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to(device)
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.01 if device == "sim" else 25)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for step in range(4):
        torch.manual_seed(10 * step + rank)
        parallel(torch.randn(4, 64).to(device)).sum().backward()
    gradients = torch.cat([parameter.grad.flatten().cpu() for parameter in model.parameters()])
    return gradients.numpy().tobytes()


def test_a_hook_that_communicates_does_not_deadlock(device):
    results = run_ranks(powersgd, 2, device)
    assert results[0] == results[1]


def callback_waits(rank, size, device):
    """A callback may issue a call and wait for it."""
    done = threading.Event()

    def again(first):
        tensor = first.value()[0]
        dist.all_reduce(tensor, async_op=True).wait()
        second = dist.all_reduce(tensor, async_op=True).get_future().wait()[0]
        done.set()
        return second

    tensor = torch.ones(10, device=device)
    result = dist.all_reduce(tensor, async_op=True).get_future().then(again).wait()
    assert done.is_set()
    assert values.equal(result, torch.full((10,), float(size**3)))


def test_a_callback_may_communicate(device):
    run_ranks(callback_waits, 2, device)


def futures_in_any_order(rank, size, device):
    futures = [
        dist.all_reduce(torch.full((1000 * (i + 1),), float(i), device=device), async_op=True).get_future()
        for i in range(8)
    ]
    for i in reversed(range(8)):
        assert values.equal(futures[i].wait()[0], torch.full((1000 * (i + 1),), float(i * size)))
    collected = torch.futures.collect_all(futures).wait()
    assert len(collected) == 8


def test_futures_complete_in_any_order(device):
    run_ranks(futures_in_any_order, 2, device)


def future_of_a_barrier(rank, size):
    """A call that waits on the host has a Future that does so too."""
    torch.zeros(1, device="sim")
    gate = Gate()
    passed = torch.Event("sim")
    passed.record()
    future = dist.barrier(async_op=True, device_ids=[0]).get_future()
    assert not future.done()
    gate.open()
    future.wait()
    assert passed.query() and not gate.forced


def future_of_a_receive_from_anybody(rank, size):
    tensor = torch.zeros(10, device="sim")
    if rank == 0:
        value = dist.group.WORLD.recv_anysource([tensor], 0).get_future().wait()[0]
        assert values.equal(value, torch.full((10,), 5.0))
    else:
        dist.send(tensor.fill_(5), 0)


@pytest.mark.parametrize("case", [future_of_a_barrier, future_of_a_receive_from_anybody], ids=lambda case: case.__name__)
def test_a_future_waits_where_its_call_does(case, sim):
    run_ranks(case, 2)


def freed_before_it_is_unmapped(rank, size):
    torch.sim.set_device(rank)
    tensor = torch.ones(8, device="sim")
    dist.broadcast(tensor, 0)
    assert tensor.tolist() == [1] * 8
    del tensor
    torch.sim.empty_cache()
    assert torch.empty(1024, 1024, device="sim").normal_().isfinite().all()


# Strict mode: who touches memory that is not mapped for it is told.
def test_memory_may_be_returned_before_its_mapping_is(sim):
    run_ranks(freed_before_it_is_unmapped, 2, environment={"TORCH_SIM_STRICT": "1"})

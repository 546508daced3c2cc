"""Functions that are told of finished calls, the times of calls, and estimates of them."""

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import OpType

from ranks import run_ranks


def tells_of_each_call(rank, size, device):
    told = []
    threads = set()

    def hook(info):
        threads.add(threading.get_ident())
        told.append(info)

    group = dist.new_group()
    group._register_on_completion_hook(hook)
    assert group._has_hooks()
    for _ in range(3):
        dist.all_reduce(torch.ones(9, device=device), group=group, async_op=True)
    dist.all_reduce(torch.ones(9, device=device), group=group)
    if rank == 0:
        dist.send(torch.ones(2, device=device), 1, group=group)
    else:
        dist.recv(torch.ones(2, device=device), 0, group=group)
    dist.barrier(group=group)
    group._wait_for_pending_works()
    assert threads.isdisjoint({threading.get_ident()})
    assert len(threads) == 1
    dist.destroy_process_group(group)
    for info in told:
        assert info.time_started <= info.time_finished
        assert timedelta(0) <= info.active_duration < timedelta(seconds=30)
        assert info.active_duration <= info.time_finished - info.time_started + timedelta(microseconds=2)
    message = OpType.SEND if rank == 0 else OpType.RECV
    heard = sorted((info.op_type.name, info.seq) for info in told)
    assert heard == sorted([("ALLREDUCE", n) for n in (1, 2, 3, 4)] + [(message.name, 1), ("BARRIER", 5)])


def test_a_hook_is_told_of_each_call_on_a_thread_of_its_own(device):
    run_ranks(tells_of_each_call, 2, device)


def ends_while_its_event_is_asked(rank, size, device, how):
    told = []
    group = dist.new_group()
    group._register_on_completion_hook(lambda info: told.append(info.seq))
    for call in range(10):
        if how == "by the next call":  # which lets go of what finished calls held
            dist.all_reduce(torch.ones(9, device=device), group=group, async_op=call % 2 == 0)
        else:
            dist.barrier(group=group, device_ids=[0])
    group._wait_for_pending_works()
    assert sorted(told) == list(range(1, 11))


@pytest.mark.parametrize("how", ["by a wait", "by the next call"])
def test_a_call_may_be_ended_while_its_event_is_asked(how, sim):
    """The thread that tells the hook asks the event of a call when another thread lets go of it."""
    run_ranks(ends_while_its_event_is_asked, 2, sim, how, environment={"TORCH_SIM_FLAWS": "slow-queries"})


def results_of_strided_calls(rank, size, device):
    told = []
    group = dist.new_group()
    group._register_on_completion_hook(lambda info: told.append(info.seq))
    calls = 500
    for call in range(calls):
        column = torch.full((9, 2), float(call), device=device)[:, 0]
        dist.all_reduce(column, group=group, async_op=True).wait()
        assert column.cpu().eq(float(size * call)).all(), f"call {call}: {column.cpu()}"
    group._wait_for_pending_works()
    assert told == list(range(1, calls + 1))


def test_a_hook_takes_no_result_that_is_still_to_be_copied_back(device):
    """In strict mode, where a call is over before the caller has queued the copies sooner or later."""
    run_ranks(results_of_strided_calls, 2, device, environment={"TORCH_SIM_STRICT": "7"})


def asks_until_it_is_over(rank, size, device):
    told = []
    group = dist.new_group()
    group._register_on_completion_hook(lambda info: told.append(info.seq))
    calls = 200
    for _ in range(calls):
        # The input belongs to the call alone, so that the thread that ends the call frees it, with the interpreter's lock.
        output = torch.zeros(9 * size, device=device)
        work = dist.all_gather_into_tensor(output, torch.ones(9, device=device), group=group, async_op=True)
        while not work.is_completed():
            pass
        assert output.cpu().eq(1).all()
    group._wait_for_pending_works()
    assert told == list(range(1, calls + 1))


def test_a_program_may_ask_a_call_that_another_thread_ends(device):
    run_ranks(asks_until_it_is_over, 2, device, timeout=30)


def drained(rank, size):
    told = []
    release = threading.Event()

    def hook(info):
        release.wait(20)
        told.append(info.seq)

    group = dist.new_group()
    group._register_on_completion_hook(hook)
    for _ in range(4):
        dist.all_reduce(torch.ones(1), group=group)
    assert told == [], "a hook that blocks holds up no call"
    threading.Timer(0.1, release.set).start()
    dist.destroy_process_group(group)
    assert told == [1, 2, 3, 4]


def test_destroying_a_group_waits_for_its_hook():
    run_ranks(drained, 2)


def hooks_that_call(rank, size):
    sums = []
    other = dist.new_group()

    def hook(info):
        one = torch.ones(1)
        dist.all_reduce(one, group=other)
        sums.append(one.item())

    group = dist.new_group()
    group._register_on_completion_hook(hook)
    for _ in range(3):
        dist.all_reduce(torch.ones(1), group=group)
    group._wait_for_pending_works()
    assert sums == [size] * 3


def test_a_hook_may_issue_calls_and_wait_for_them():
    run_ranks(hooks_that_call, 2)


def calls_in_a_callback(rank, size):
    """Two ranks send each other more than a link takes unasked, from callbacks on the thread that completes Futures."""
    told, works = [], []
    peer = 1 - rank
    dist.group.WORLD._register_on_completion_hook(lambda info: told.append(info.op_type.name))
    sent, received = torch.full((1 << 20,), rank + 1.0), torch.zeros(1 << 20)

    def exchange(_):
        works.append(dist.isend(sent, peer))
        works.append(dist.irecv(received, peer))

    begin = torch.zeros(1)
    begun = dist.irecv(begin, peer, tag=1).get_future().then(exchange)
    dist.send(torch.ones(1), peer, tag=1)
    begun.wait()
    for work in works:
        work.wait()
    assert received.eq(peer + 1).all()
    dist.group.WORLD._wait_for_pending_works()
    assert sorted(told) == ["RECV", "RECV", "SEND", "SEND"]


def test_a_call_in_a_callback_does_not_wait_to_tell_its_hook():
    run_ranks(calls_in_a_callback, 2, timeout=20)


def a_hook_that_raises(rank, size):
    told = []

    def hook(info):
        told.append(info.seq)
        if info.seq == 1:
            raise KeyError("the first is not to my taste")

    dist.group.WORLD._register_on_completion_hook(hook)
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1))
    dist.group.WORLD._wait_for_pending_works()
    assert told == [1, 2]


def test_a_hook_that_raises_is_reported_and_called_again(capfd):
    run_ranks(a_hook_that_raises, 2)
    said = capfd.readouterr().err
    assert "completion hook of group 0 failed for ALLREDUCE #1" in said
    assert "not to my taste" in said


def two_hooks(rank, size):
    dist.group.WORLD._register_on_completion_hook(lambda info: None)
    with pytest.raises(ValueError, match="has a completion hook already"):
        dist.group.WORLD._register_on_completion_hook(lambda info: None)


def test_a_group_takes_one_hook():
    run_ranks(two_hooks, 2)


def durations(rank, size, device):
    dist.group.WORLD._enable_collectives_timing()
    if rank == 0:
        late = torch.zeros(1)
        dist.recv(late, 1)  # rank 1 has begun
        time.sleep(0.05)
    tensor = torch.ones(4, device=device)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        dist.send(torch.zeros(1), 0)
    work.wait()
    assert tensor.cpu().eq(size).all()
    while not work.is_completed():
        pass
    return work._get_duration()


def test_a_work_tells_how_long_its_call_took(device):
    short, long = run_ranks(durations, 2, device)
    assert 0 < short < long
    assert 50 <= long < 20_000, "milliseconds, with the wait for the other rank"


def estimates(rank, size):
    device = torch.device("cpu")
    backend = dist.group.WORLD._get_backend(device)
    assert backend.supports_time_estimate
    tensor = torch.full((1 << 20,), rank + 1.0)
    with dist._time_estimator(device=device) as one:
        dist.all_reduce(tensor)
    with dist._time_estimator(device=device) as three:
        for _ in range(2):
            dist.all_reduce(tensor)
        dist.all_reduce(tensor, async_op=True).wait()
    with dist._time_estimator(device=device) as other:
        if rank == 0:
            dist.all_gather_into_tensor(torch.empty(2 << 10), torch.ones(1 << 10))
            dist.send(tensor, 1)
            dist.barrier()
    assert tensor.eq(rank + 1.0).all(), "nothing was run"
    assert one.estimated_time > 0
    assert three.estimated_time == pytest.approx(3 * one.estimated_time)
    assert (other.estimated_time > 0) == (rank == 0), "and no rank waits for another"
    with pytest.raises(ValueError, match="no time is being estimated"):
        backend._end_time_estimate()
    dist.all_reduce(tensor)
    assert tensor.eq(3.0).all()
    return one.estimated_time


def test_times_are_estimated_without_making_the_calls():
    from hccl_like import _extension

    first, second = run_ranks(estimates, 2)
    assert first == second
    _, _, microseconds = _extension.load().explain("all_reduce", 4 << 20, [0, 0])[0]
    assert first == pytest.approx(microseconds), "what `hccl-like explain` says"

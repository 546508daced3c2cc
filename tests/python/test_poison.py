"""A step that fails in the order of a stream: nobody can be told there, so its results are spoilt and the group is."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from ranks import run_ranks
from streams import CALLS, Gate, copy_all

BYSTANDERS = [0, 2]  # the ranks that nothing happens to, and a group of theirs


def all_are_here(place, rank, size):
    """A barrier that a group's end does not disturb."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{place} {rank}", "")
    store.wait([f"{place} {other}" for other in range(size)])


def queue_all_reduce(rank, tensor):
    """On all ranks but one, which goes on when the others have queued theirs. Over the store: the group is about to end."""
    store = dist.distributed_c10d._get_default_store()
    if rank != 1:
        work = dist.all_reduce(tensor, async_op=True)
        store.set(f"queued {rank}", "")
        return work
    store.wait([f"queued {other}" for other in BYSTANDERS])


def a_rank_dies(rank, tensor):
    work = queue_all_reduce(rank, tensor)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return work


def sizes_differ(rank, tensor):
    work = dist.all_reduce(tensor[: 100 + rank], async_op=True)
    all_are_here("queued", rank, 3)
    return work


def a_rank_stays_away(rank, tensor):
    if rank == 1:
        time.sleep(2.5)  # longer than the time-out of the others
        return None
    return dist.all_reduce(tensor, async_op=True)


def a_rank_aborts(rank, tensor):
    work = queue_all_reduce(rank, tensor)
    if rank == 1:
        dist.group.WORLD._get_backend(tensor.device).abort()
    return work


FAILURES = {
    a_rank_dies: r"rank 1\b.*(closed|gone|lost|died|ended)",
    sizes_differ: "Every rank must make the same calls",
    a_rank_stays_away: r"reached its timeout after .* rank(s)? 1\b",
    a_rank_aborts: "was aborted on rank 1: abort",
}


def poisoned(rank, size, fail, words):
    device = torch.device("sim", 0)
    tensor = torch.full((1000,), 1.0, device=device)
    other_group = dist.new_group(BYSTANDERS)
    dist.all_reduce(tensor)
    if rank in BYSTANDERS:
        dist.all_reduce(tensor, group=other_group)
    torch.sim.synchronize()

    gate = Gate()
    tensor.fill_(5)
    work = fail(rank, tensor)
    if work is None:
        gate.open()
        return is_told(device)
    work.wait()
    result = torch.zeros_like(tensor)
    result.copy_(tensor)
    gate.require_closed("a call that is going to fail")
    gate.open()

    # The streams come to their end, and that tells of the failure, unless it is one's own abort.
    asked_for = fail is a_rank_aborts and rank == 1
    with contextlib.nullcontext() if asked_for else pytest.raises(dist.DistBackendError, match=words):
        torch.sim.synchronize()
    # Nothing is left that could be taken for a result.
    touched = 100 + rank if fail is sizes_differ else 1000
    assert result[:touched].isnan().all(), result
    assert values.equal(result[touched:], torch.full((1000 - touched,), 5.0))
    assert "SUCCESS" not in str(dist.group.WORLD._get_backend(device).get_error())

    texts = []
    for again in (
        lambda: work.wait(timedelta(seconds=10)),
        lambda: work.wait(),
        lambda: dist.all_reduce(tensor),
        lambda: dist.all_reduce(torch.ones(1)),
        lambda: dist.broadcast(tensor, 0, async_op=True),
        lambda: dist.send(tensor, (rank + 1) % size),
    ):
        begin = time.monotonic()
        with pytest.raises(dist.DistBackendError, match=words) as caught:
            again()
        assert time.monotonic() - begin < 1, "a group that has failed says so at once"
        texts.append(str(caught.value))
    for text in texts:
        named = fail is a_rank_aborts or re.search("all_reduce( #| of float32)", text)
        assert named, f"the operation that failed is not named: {text}"
    assert work.exception() is not None
    assert work.is_completed() and not work.is_success()

    if rank in BYSTANDERS:
        tensor.fill_(rank)
        dist.all_reduce(tensor, group=other_group)
        assert values.equal(tensor, torch.full((1000,), 2.0)), "another group is none the worse"
    dist.destroy_process_group()
    return "told"


def is_told(device):
    """Who took no part hears of it when he next makes a call, at the latest when he waits for it."""
    with pytest.raises(dist.DistBackendError, match="rank"):
        dist.all_reduce(torch.ones(1, device=device), async_op=True).wait(timedelta(seconds=20))
    with pytest.raises(dist.DistBackendError, match="rank"):
        dist.all_reduce(torch.ones(1, device=device))
    dist.destroy_process_group()
    return "told"


@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
def test_a_failure_spoils_the_result_and_the_group(fail, sim, transport):
    results = run_ranks(poisoned, 3, fail, FAILURES[fail], group_timeout=1 if fail is a_rank_stays_away else 30,
                        environment=transport)  # fmt: skip
    assert results == ["told", -signal.SIGKILL if fail is a_rank_dies else "told", "told"]


def every_output_is_spoilt(rank, size, count=1003):
    """Each call, queued in a group that is given up before it runs."""
    device = torch.device("sim", 0)
    for call in CALLS:
        group = dist.new_group(list(range(size)))
        tensors, sources = call.on_device(rank, size, count, device)
        gate = Gate()
        copy_all(tensors, sources)
        for work in call.issue(tensors, rank, size, True, group):
            work.wait()
        gate.require_closed(call.name)
        all_are_here(call.name, rank, size)
        group._get_backend(device).abort()
        gate.open()
        torch.sim.synchronize()
        for tensor, (before, after) in zip(tensors, call.tensors(rank, size, count)):
            if after is None or values.equal(before, after):
                continue
            assert tensor.isnan().all(), f"{call.name} left {tensor}"
        dist.barrier()


def test_every_output_of_a_failed_call_is_spoilt(sim):
    run_ranks(every_output_is_spoilt, 2)


def types_that_have_no_nan(rank, size):
    device = torch.device("sim", 0)
    group = dist.new_group(list(range(size)))
    flags, counts = torch.zeros(9, dtype=torch.bool, device=device), torch.zeros(9, dtype=torch.int32, device=device)
    complex_numbers = torch.zeros(9, dtype=torch.complex64, device=device)
    torch.sim.synchronize()
    gate = Gate()
    for tensor in (flags, counts, complex_numbers):
        dist.all_reduce(tensor, group=group)
    all_are_here("queued", rank, size)
    group._get_backend(device).abort()
    gate.open()
    torch.sim.synchronize()
    assert flags.view(torch.uint8).eq(1).all(), "a boolean stays one"
    assert counts.eq(-1).all()
    assert complex_numbers.isnan().all()


def test_other_types_are_spoilt_as_far_as_they_can(sim):
    run_ranks(types_that_have_no_nan, 2)


def a_call_that_succeeded_says_so(rank, size):
    device = torch.device("sim", 0)
    good, bad = torch.ones(10, device=device), torch.ones(10, device=device)
    first = dist.all_reduce(good, async_op=True)
    torch.sim.synchronize()
    gate = Gate()
    second = dist.all_reduce(bad, async_op=True)
    all_are_here("queued", rank, size)
    dist.group.WORLD._get_backend(device).abort()
    gate.open()
    torch.sim.synchronize()
    first.wait()
    assert first.is_success() and values.equal(good, torch.full((10,), float(size)))
    with pytest.raises(dist.DistBackendError, match="abort"):
        second.wait()


def test_what_was_over_before_the_failure_is_good(sim):
    run_ranks(a_call_that_succeeded_says_so, 2)


def waits_in_threads(rank, size):
    """Whoever waits on the host when a group fails is told, in whichever thread."""
    device = torch.device("sim", 0)
    tensors = [torch.ones(10, device=device) for _ in range(3)]
    torch.sim.synchronize()
    gate = Gate()
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    all_are_here("queued", rank, size)
    errors = []

    def wait(work):
        try:
            work.wait(timedelta(seconds=20))
        except dist.DistBackendError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=wait, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    dist.group.WORLD._get_backend(device).abort()
    gate.open()
    for thread in threads:
        thread.join(20)
    assert len(errors) == 3 and all("abort" in error for error in errors), errors


def test_all_who_wait_are_told(sim):
    run_ranks(waits_in_threads, 2)


def on_a_device_without_plugin(rank, size, listener):
    from hccl_like import _plugins

    from ranks import make_store

    _plugins.register = lambda extension: None
    dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size)
    tensor = torch.ones(1000, device="sim")
    dist.all_reduce(tensor)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(tensor, async_op=True)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        work.wait()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        dist.all_reduce(tensor)
    dist.destroy_process_group()
    return "told"


def test_without_a_plugin_the_wait_itself_raises(sim):
    assert run_ranks(on_a_device_without_plugin, 2, group=False) == ["told", -signal.SIGKILL]


PROGRAM = """
import os, signal, sys
import torch
import torch.distributed as dist

rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("hccl-like", store=dist.FileStore(path, 2), rank=rank, world_size=2)
tensor = torch.ones(1000, device="sim")
dist.all_reduce(tensor)
torch.sim.synchronize()
torch.sim._sleep(50)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
works = [dist.all_reduce(tensor, async_op=True) for _ in range(5)]
futures = [work.get_future() for work in works]
{end}
"""


TOLD = r"hccl-like: a call that nobody has waited for \[HCCL-LIKE-301\]: peer lost \(rank 1\)"
AT_THE_END = r"hccl-like \[HCCL-LIKE-301\]: a call failed that nobody has waited for, .*: peer lost \(rank 1\)"


@pytest.mark.parametrize(
    "end, status, told",
    [("try: torch.sim.synchronize()\nexcept RuntimeError as error: print(error)\ndist.destroy_process_group()", 0, TOLD),
     pytest.param("torch.sim.synchronize()", 1, TOLD, marks=pytest.mark.slow),
     pytest.param("pass", 1, AT_THE_END, marks=pytest.mark.slow)],
    ids=["destroyed", "not destroyed", "calls still queued"],
)  # fmt: skip
def test_a_program_ends_after_a_failure(end, status, told, sim, tmp_path):
    ranks = [
        subprocess.Popen([sys.executable, "-c", PROGRAM.format(end=end), str(rank), str(tmp_path / "store")],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]  # fmt: skip
    output, _ = ranks[0].communicate(timeout=60)
    ranks[1].wait()
    assert ranks[0].returncode == status, output
    assert len(re.findall(told, output)) == 1 and not any(word in output for word in ("terminate called", "Fatal")), output

"""Large calls in the order of streams where nothing is mapped go in slices: exact, in order, without the host waiting, and as harmless
as any other call when they fail."""

import contextlib
import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from hccl_like import _plugins
from plugins import run
from streams import GARBAGE, Gate, open_in_another_order
from test_poison import all_are_here, every_output_is_spoilt
from test_staged_calls import COUNT, IN_SLICES, STAGED, cut_up, mine
from test_staged_pairs import PAIRS, in_any_order
from test_stream_calls import LARGE, SCENARIOS, every_call

# What the plugin lacks, so that large calls go through the host. Without host functions it has words.
WAYS = {"host functions": "map, peers", "words": "map, host functions, peers"}
DEVICE = torch.device("sim", 0)


def total(size, count=COUNT):
    return values.total([mine(r, count) for r in range(size)])


def warm(device=DEVICE):
    """The first call of a process asks the device what it can do, and may wait for it; so may what allocates staging memory."""
    dist.all_reduce(torch.zeros(COUNT, device=device))
    torch.sim.synchronize(device)


def everything(rank, size):
    for case in STAGED + PAIRS:
        case(rank, size)
    if size == 2:
        in_any_order(rank, size)


@pytest.mark.parametrize("way", WAYS)
def test_every_call_is_exact_with(way, sim, stripped, tmp_path):
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(tmp_path / "log")}
    run(everything, 2, stripped, WAYS[way], environment=IN_SLICES | log, timeout=120)
    text = (tmp_path / "log").read_text()
    assert "sim:0: memory copied to and from the host, calls in stream order\n" in text
    how = "copied by its plugin on streams of its own, through memory registered by its plugin"
    assert f"sim:0: large calls are {how}\n" in text


@pytest.mark.slow
def test_every_call_is_exact_on_three_ranks(sim, stripped):
    run(everything, 3, stripped, WAYS["host functions"], environment=IN_SLICES, timeout=120)


IN_ONE_PIECE = ["map, events, peers", "map, own streams, peers"]  # a stream that copies must be able to wait for the caller's, and not be it


@pytest.mark.parametrize("without", list(WAYS.values()) + IN_ONE_PIECE)
def test_what_is_large_goes_in_slices_if_the_plugin_copies_beside_streams(without, sim, stripped):
    numbers = [1, 1, 1, 1] if without in IN_ONE_PIECE else [4, 1, 7, 1]
    assert run(cut_up, 2, stripped, without, environment=IN_SLICES) == [numbers] * 2


# ------------------------------------------------------------------------------------------------------------- order


def every_call_once_warm(rank, size, scenario):
    warm(torch.device("sim", 1))
    every_call(rank, size, scenario, LARGE, 1)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_call_keeps_the_order_of_streams(scenario, sim, stripped):
    run(every_call_once_warm, 2, stripped, WAYS["host functions"], scenario, environment=IN_SLICES)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_call_keeps_the_order_of_streams_with_words(scenario, sim, stripped):
    run(every_call_once_warm, 2, stripped, WAYS["words"], scenario, environment=IN_SLICES)


def large_and_small(rank, size):
    """On one stream, synchronous and not, each working on what the one before it made."""
    warm()
    for asynchronous in (True, False):
        tensor = mine(rank).to("sim")
        torch.sim.synchronize()
        gate = Gate()
        works = []
        for part in (tensor, tensor[:7], tensor, tensor[COUNT - 9 :], tensor[:7]):
            works.append(dist.all_reduce(part, async_op=asynchronous))
        gate.require_closed("a row of calls")
        gate.open()
        if asynchronous:
            works[-1].wait()
        expected = total(size) * size
        expected[:7] *= size * size
        expected[COUNT - 9 :] *= size
        assert values.equal(tensor, expected)


@pytest.mark.parametrize("way", WAYS)
def test_large_and_small_calls_of_a_stream_are_in_its_order(way, sim, stripped):
    run(large_and_small, 2, stripped, WAYS[way], environment=IN_SLICES)


def on_several_streams(rank, size):
    """Large calls of one group, whose streams come to them in another order: they go in the order in which they were issued."""
    warm()
    streams = [torch.sim.Stream() for _ in range(3)]
    tensors = [torch.full((COUNT,), GARBAGE, device="sim") for _ in streams]
    torch.sim.synchronize()
    gates = []
    for i, stream in enumerate(streams):
        with torch.sim.stream(stream):
            gates.append(Gate())
            tensors[i].fill_(rank + i)
            dist.all_reduce(tensors[i])
            gates[i].require_closed("issuing a call")
    open_in_another_order(gates, tensors, rank, size)


def several_groups(rank, size):
    """One group's large call does not wait for another's."""
    other = dist.new_group(list(range(size)))
    for group in (None, other):
        dist.all_reduce(torch.zeros(COUNT, device="sim"), group=group)
    held_up, free = torch.full((COUNT,), GARBAGE, device="sim"), mine(rank).to("sim")
    torch.sim.synchronize()
    gate = Gate()
    held_up.fill_(rank)
    work = dist.all_reduce(held_up, async_op=True)
    with torch.sim.stream(torch.sim.Stream()):
        dist.all_reduce(free, group=other)
        torch.sim.current_stream().synchronize()
        gate.require_closed("a call of another group")
        assert values.equal(free, total(size))
    gate.open()
    work.wait()
    assert values.equal(held_up, torch.full((COUNT,), float(sum(range(size)))))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", [on_several_streams, several_groups], ids=lambda case: case.__name__)
def test_calls_of(case, way, sim, stripped):
    run(case, 2, stripped, WAYS[way], environment=IN_SLICES)


def resized(rank, size):
    """As FSDP does with what it has gathered: after wait(), behind the call, though the device has not begun it."""
    warm()
    part, whole = mine(rank).to("sim"), torch.empty(size * COUNT, device="sim")
    copy = torch.zeros(size * COUNT, device="sim")
    torch.sim.synchronize()
    gate = Gate()
    dist.all_gather_into_tensor(whole, part, async_op=True).wait()
    copy.copy_(whole)
    whole.untyped_storage().resize_(0)
    others = torch.full((size * COUNT,), GARBAGE, device="sim")
    gate.require_closed("a call whose output is given back")
    gate.open()
    assert values.equal(copy, torch.cat([mine(r) for r in range(size)]))
    assert others.eq(GARBAGE).all()


def test_storage_may_be_given_back_before_the_device_begins(sim, stripped):
    run(resized, 2, stripped, WAYS["host functions"], environment=IN_SLICES)


def late_on_both_sides(rank, size):
    """The time-out counts from when the stream gets to the call."""
    tensor = mine(rank).to("sim")
    dist.all_reduce(tensor)
    torch.sim.synchronize()
    options = dist.AllreduceOptions()
    options.timeout, options.asyncOp = timedelta(seconds=0.5), True
    gate = Gate()
    work = dist.group.WORLD.allreduce([tensor], options)
    time.sleep(1)
    all_are_here("late", rank, size)
    gate.open()
    work.wait()
    assert values.equal(tensor, total(size) * size)


def test_time_behind_other_work_of_the_stream_does_not_count(sim, stripped):
    run(late_on_both_sides, 2, stripped, WAYS["host functions"], environment=IN_SLICES)


# ------------------------------------------------------------------------------------------------------------ failures


def every_slice_is_spoilt(rank, size):
    warm()
    every_output_is_spoilt(rank, size, LARGE)


def test_every_output_of_a_failed_call_is_spoilt(sim, stripped):
    run(every_slice_is_spoilt, 2, stripped, WAYS["host functions"], environment=IN_SLICES)


def ended(tensor, words):
    """After a call that failed: its stream has gone on, nothing looks like a result, and the group says why."""
    with pytest.raises(dist.DistBackendError, match=words):
        torch.sim.synchronize()
    assert tensor.isnan().all(), tensor
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=words) as caught:
        dist.all_reduce(torch.ones(3, device=DEVICE), async_op=True).wait(timedelta(seconds=20))
    assert time.monotonic() - begin < 5
    return str(caught.value)


SLOWLY = IN_SLICES | {"TORCH_SIM_HOST_GBPS": "0.026"}  # a call of MUCH takes a second
MUCH = 6 << 20


def half_a_call(rank, size):
    tensor = torch.ones(MUCH, device=DEVICE)
    dist.all_reduce(tensor[:9])
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    work.wait()
    return ended(tensor, r"rank 1\b.*(closed|gone|lost|died|ended)")


@pytest.mark.parametrize("way", WAYS)
def test_a_peer_that_dies_halfway_ends_the_call(way, sim, stripped):
    assert run(half_a_call, 2, stripped, WAYS[way], environment=SLOWLY)[1] == -signal.SIGKILL


def alone(rank, size):
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        return store.wait(["over"], timedelta(seconds=40))
    tensor = mine(rank).to("sim")
    options = dist.AllreduceOptions()
    options.timeout, options.asyncOp = timedelta(seconds=1), True
    dist.group.WORLD.allreduce([tensor], options).wait()
    ended(tensor, "reached its timeout after")
    store.set("over", "")


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_the_others_do_not_make_times_out(way, sim, stripped):
    run(alone, 2, stripped, WAYS[way], environment=IN_SLICES)


def with_a_fault(rank, size, fault):
    dist.all_reduce(mine(rank).to("sim"))  # copies of parts are measured before it, once
    torch.sim.synchronize()
    if rank == 1:
        os.environ["FAULT"] = fault
    tensor, behind = mine(rank).to("sim"), torch.zeros(COUNT, device="sim")
    dist.all_reduce(tensor)
    torch.sim.synchronize()
    assert values.equal(tensor, total(size))
    gate = Gate()
    dist.all_reduce(tensor, async_op=True).wait()
    behind.copy_(tensor)
    gate.open()
    with contextlib.suppress(dist.DistBackendError):  # it tells of the failure, if this rank was not done with the call
        torch.sim.synchronize()
    # Rank 0 may have been done with it: then its result is whole.
    assert behind.isnan().all() or (rank == 0 and values.equal(behind, total(size) * size))
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="the cable was pulled") as caught:
        dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=20))
    assert time.monotonic() - begin < 5
    return str(caught.value)


# The call before takes four slices, each with one copy.
@pytest.mark.parametrize("fault", ["copy_d2h:5", "copy_d2h:7", "copy_h2d:5", "copy_h2d:8"])
def test_a_copy_that_fails_ends_the_call(fault, sim, stripped, faulty):
    plugins = {"PLUGIN": faulty, "SOUND_PLUGIN": _plugins.found()["sim"]}
    said = run(with_a_fault, 2, stripped, WAYS["host functions"], fault, environment=IN_SLICES | plugins)
    assert f"({fault[:8]} of its plugin): the cable was pulled" in said[1] and "rank 1" in said[0], said


def not_queued(rank, size):
    """The stream does not take the end of a call whose slices are prepared."""
    if rank == 1:
        os.environ["FAULT"] = "host_func:2"
    tensor = mine(rank).to("sim")
    dist.all_reduce(tensor)
    if rank == 1:
        with pytest.raises(RuntimeError, match="host_func of its plugin.*the cable was pulled"):
            dist.all_reduce(tensor)
    else:
        with contextlib.suppress(dist.DistBackendError):  # if it hears of it while it issues
            dist.all_reduce(tensor)
        with pytest.raises(dist.DistBackendError, match="the cable was pulled"):
            dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=20))
    torch.sim.synchronize()


def test_a_stream_that_does_not_take_a_call_hangs_nothing(sim, stripped, faulty):
    plugins = {"PLUGIN": faulty, "SOUND_PLUGIN": _plugins.found()["sim"]}
    run(not_queued, 2, stripped, WAYS["host functions"], environment=IN_SLICES | plugins)

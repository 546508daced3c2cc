"""Large calls of ranks on one host that streams of the devices make among themselves: no byte goes through the host."""

import contextlib
import ctypes
import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import values
from conftest import slow_after_first
from hccl_like import _extension, _plugins
from plugins import run
from ranks import run_ranks
from streams import Gate
from test_poison import every_output_is_spoilt
from test_staged_calls import COUNT, IN_SLICES, SLICE, STAGED, mine
from test_staged_pairs import PAIRS, in_any_order
from test_stream_calls import LARGE, SCENARIOS
from test_stream_slices import (
    alone,
    ended,
    every_call_once_warm,
    large_and_small,
    late_on_both_sides,
    on_several_streams,
    resized,
    several_groups,
    total,
    warm,
)

# Entries that the plugin lacks. It has host functions, words or both.
WAYS = {
    "host functions and words": "map",
    "words": "map, host functions",
    "host functions": "map, words, many sources",
}
WAY = "map"


def copied_bytes():
    library = ctypes.CDLL(_plugins.found()["sim"])
    library.copied_bytes.restype = ctypes.c_ulonglong
    return library.copied_bytes()


def everything(rank, size):
    for case in STAGED + PAIRS:
        case(rank, size)
    if size == 2:
        in_any_order(rank, size)


@pytest.mark.parametrize("way", WAYS)
def test_every_call_is_exact_with(way, sim, stripped):
    run(everything, 2, stripped, WAYS[way], environment=IN_SLICES, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4])
def test_every_call_is_exact_on(size, sim, stripped):
    run(everything, size, stripped, WAY, environment=IN_SLICES, timeout=240)


def all_reduce(rank, size, tensor):
    dist.all_reduce(tensor)


def reduce(rank, size, tensor):
    dist.reduce(tensor, size - 1)


def reduce_scatter(rank, size, tensor):
    dist.reduce_scatter_tensor(torch.empty(tensor.numel() // size, device="sim"), tensor)


def all_gather(rank, size, tensor):
    dist.all_gather_into_tensor(torch.empty(size * tensor.numel(), device="sim"), tensor)


def all_gather_list(rank, size, tensor):
    dist.all_gather([torch.empty_like(tensor) for _ in range(size)], tensor)


def broadcast(rank, size, tensor):
    dist.broadcast(tensor, 0)


def gather(rank, size, tensor):
    dist.gather(tensor, [torch.empty_like(tensor) for _ in range(size)] if rank == 0 else None, 0)


def scatter(rank, size, tensor):
    dist.scatter(torch.empty_like(tensor), [tensor.clone() for _ in range(size)] if rank == 1 else None, 1)


def all_to_all(rank, size, tensor):
    dist.all_to_all_single(torch.empty_like(tensor), tensor)


def uneven_all_to_all(rank, size, tensor):
    """Each rank gives the last rank most of its tensor."""
    small = tensor.numel() // size // 2
    to = [small] * (size - 1) + [tensor.numel() - small * (size - 1)]
    of = [to[rank]] * size
    dist.all_to_all_single(torch.empty(sum(of), device="sim"), tensor, of, to)


def messages(rank, size, tensor):
    """Round a ring, one large and one in one piece, as calls and as a block."""
    after, before = (rank + 1) % size, (rank - 1) % size
    for part in (tensor, tensor[: SLICE // 8]):
        work = dist.isend(part, after)
        dist.recv(torch.empty_like(part), before)
        work.wait()
    taken = torch.empty_like(tensor)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, after), dist.P2POp(dist.irecv, taken, before)]):
        work.wait()


MOVES = [messages, uneven_all_to_all, all_reduce, reduce, reduce_scatter, all_gather, all_gather_list, broadcast, gather, scatter, all_to_all]


def no_byte_goes_through_the_host(rank, size):
    tensor = torch.ones(COUNT // size * size, device="sim")
    for move in MOVES:
        torch.sim.synchronize()
        before = copied_bytes()
        move(rank, size, tensor)
        torch.sim.synchronize()
        assert copied_bytes() == before, f"{move.__name__} copied {copied_bytes() - before} bytes"


@pytest.mark.parametrize("size", [2, 3])
def test_no_byte_goes_through_the_host(size, sim, stripped):
    run(no_byte_goes_through_the_host, size, stripped, WAY)


# ------------------------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize("scenario", slow_after_first(SCENARIOS), ids=lambda scenario: scenario.__name__)
def test_every_call_keeps_the_order_of_streams(scenario, sim, stripped):
    run(every_call_once_warm, 2, stripped, WAY, scenario, environment=IN_SLICES)


@pytest.mark.parametrize(
    "case",
    [large_and_small, on_several_streams, several_groups, resized, late_on_both_sides],
    ids=lambda case: case.__name__,
)
@pytest.mark.parametrize("way", slow_after_first(WAYS))
def test_calls_of(case, way, sim, stripped):
    run(case, 2, stripped, WAYS[way], environment=IN_SLICES)


def in_flight(rank, size):
    """Two groups with 16 calls each, none waited for before the last is issued."""
    other = dist.new_group(list(range(size)))
    for group in (None, other):
        dist.all_reduce(torch.zeros(COUNT, device="sim"), group=group)
    tensors = [[mine(rank, COUNT + i).to("sim") for i in range(16)] for _ in range(2)]
    gate = Gate()
    works = [
        dist.all_reduce(tensor, group=group, async_op=True)
        for pair in zip(*tensors)
        for tensor, group in zip(pair, (None, other))
    ]
    gate.require_closed("32 calls")
    gate.open()
    for work in works:
        work.wait()
    for row in tensors:
        for i, tensor in enumerate(row):
            assert values.equal(tensor, total(size, COUNT + i)), i


@pytest.mark.parametrize("size", [2, 3])
def test_many_calls_of_two_groups_are_in_flight(size, sim, stripped):
    run(in_flight, size, stripped, WAY, environment=IN_SLICES)


# ------------------------------------------------------------------------------------------------------------ falling back


def goes_through_the_host(rank, size):
    before = copied_bytes()
    tensor = mine(rank).to("sim")
    dist.all_reduce(tensor)
    assert values.equal(tensor, total(size))
    assert copied_bytes() - before >= 2 * tensor.nbytes


# One rank that lacks something takes all with it, without a word of mismatch.
@pytest.mark.parametrize("fault", ["peer_open:1", "reduce_many:1"])
def test_what_one_rank_cannot_do_goes_through_the_host_on_all(fault, sim, stripped, faulty):
    plugins = {"PLUGIN": faulty, "SOUND_PLUGIN": _plugins.found()["sim"]}
    run(twice_with_a_fault, 2, stripped, WAY, fault, environment=IN_SLICES | plugins)


def twice_with_a_fault(rank, size, fault):
    if rank == 1:
        os.environ["FAULT"] = fault
    for _ in range(2):
        goes_through_the_host(rank, size)


# ------------------------------------------------------------------------------------------------------------ failures


def spoilt(rank, size):
    warm()
    every_output_is_spoilt(rank, size, LARGE)


def test_every_output_of_a_failed_call_is_spoilt(sim, stripped):
    run(spoilt, 2, stripped, WAY, environment=IN_SLICES)


@pytest.mark.parametrize("way", slow_after_first(WAYS))
def test_a_call_that_the_others_do_not_make_times_out(way, sim, stripped):
    run(alone, 2, stripped, WAYS[way], environment=IN_SLICES)


def behind_a_peer_that_dies(rank, size, victim=1):
    """The streams wait for a rank whose own stream never gets to the call."""
    warm()
    tensor = torch.ones(COUNT, device="sim")
    torch.sim.synchronize()
    if rank == victim:
        gate = Gate()
    work = dist.all_reduce(tensor, async_op=True)
    if rank == victim:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
        gate.open()
    begin = time.monotonic()
    work.wait()
    said = ended(tensor, rf"rank {victim}\b.*(closed|gone|lost|died|ended)")
    assert time.monotonic() - begin < 5
    return said


@pytest.mark.parametrize("way", WAYS)
def test_a_peer_that_dies_ends_the_streams_of_the_others(way, sim, stripped):
    said = run(behind_a_peer_that_dies, 3, stripped, WAYS[way], environment=IN_SLICES)
    assert said[1] == -signal.SIGKILL and "all_reduce" in said[0] and "all_reduce" in said[2], said


def with_a_fault(rank, size, fault):
    warm()
    if rank == 1:
        os.environ["FAULT"] = fault
    tensor = mine(rank).to("sim")
    torch.sim.synchronize()
    with contextlib.suppress(dist.DistBackendError):  # if the group has failed by now
        dist.all_reduce(tensor, async_op=True).wait()
    with contextlib.suppress(dist.DistBackendError):
        torch.sim.synchronize()
    assert tensor.isnan().all(), tensor
    with pytest.raises(dist.DistBackendError, match="the cable was pulled") as caught:
        dist.all_reduce(torch.ones(3, device="sim"), async_op=True).wait(timedelta(seconds=20))
    return str(caught.value)


@pytest.mark.parametrize("fault", ["copy_d2d:1", "reduce_many:1", "stream_write_value:1", "host_func:2"])
def test_work_that_the_device_does_not_take_ends_the_call(fault, sim, stripped, faulty):
    plugins = {"PLUGIN": faulty, "SOUND_PLUGIN": _plugins.found()["sim"]}
    said = run(with_a_fault, 2, stripped, WAY, fault, environment=IN_SLICES | plugins)
    entry = fault.partition(":")[0]
    assert all("rank 1" in one and f"({entry} of its plugin)" in one for one in said), said


def disagreeing(rank, size):
    tensor = torch.ones(COUNT + rank, device="sim")
    options = dist.AllreduceOptions()
    options.timeout, options.asyncOp = timedelta(seconds=20), True
    with pytest.raises(dist.DistBackendError, match=f"rank 0 passed {COUNT} elements, rank 1 passed {COUNT + 1} elements"):
        dist.group.WORLD.allreduce([tensor], options).wait(timedelta(seconds=20))
    torch.sim.synchronize()
    assert tensor.isnan().all()


def test_ranks_that_disagree_are_told_so(sim, stripped):
    run(disagreeing, 2, stripped, WAY, environment=IN_SLICES)


# ------------------------------------------------------------------------------------------------------------ what is told


def goes_as_explained(rank, size):
    for collective, numel in [("all_reduce", 3000), ("all_reduce", 100_000), ("all_to_all", 20_000), ("all_to_all", 40_000)]:
        tensor = torch.ones(numel, device="sim")
        torch.sim.synchronize()
        torch.sim.reset_traffic()
        if collective == "all_reduce":
            dist.all_reduce(tensor)
        else:
            dist.all_to_all_single(torch.empty_like(tensor), tensor)
        torch.sim.synchronize()
        way = _extension.load().way(collective, tensor.nbytes, [0] * size, tensor.device)
        assert (way == "streams") == (torch.sim.traffic()["device_to_host"] == 0), (collective, numel, way)
        yield way


def ways(rank, size):
    return list(goes_as_explained(rank, size))


def test_explain_says_which_calls_streams_make(sim):
    environment = {"TORCH_SIM_DISCRETE": "1"}
    told = run_ranks(ways, 2, environment=environment)
    assert told == [["direct", "streams", "direct", "streams"]] * 2
    told = run_ranks(ways, 2, environment=environment | {"HCCL_LIKE_DIRECT": "0"})
    assert told == [["messages"] * 4] * 2


# ------------------------------------------------------------------------------------------------------------ frameworks


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh(), torch.nn.Linear(512, 512))


def train(trained, inputs):
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for step in inputs:
        optimizer.zero_grad()
        trained(step).square().mean().backward()
        optimizer.step()


def wrapped(kind, size):
    on_device = model().to("sim")
    if kind == "ddp":
        return DistributedDataParallel(on_device)
    return fully_shard(on_device, mesh=init_device_mesh("sim", (size,)))


def trains(rank, size, kind, directory):
    """Each rank has its part of each batch, so averaged gradients are those of the whole batch on the CPU."""
    torch.manual_seed(1)
    inputs = torch.randn(3, size * 8, 512)
    alone = model()
    train(alone, inputs)
    trained = wrapped(kind, size)
    torch.sim.synchronize()
    torch.sim.reset_traffic()
    train(trained, [step.chunk(size)[rank].to("sim") for step in inputs])
    torch.sim.synchronize()
    assert torch.sim.traffic()["peer"] > 3 * 2 * (1 << 20), "streams of the device did not communicate"
    checkpoint.save(get_model_state_dict(trained), checkpoint_id=directory)
    loaded = model()
    state = get_model_state_dict(loaded)
    checkpoint.load(state, checkpoint_id=directory, no_dist=True)
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_training_on_a_discrete_device_equals_that_on_the_cpu(kind, sim, tmp_path):
    run_ranks(trains, 2, kind, str(tmp_path), environment={"TORCH_SIM_DISCRETE": "1"}, timeout=120)

"""Graphs with collectives when a rank dies, does not replay or gives up, and what cannot be captured."""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from graphs import DISCRETE, MODES, WAYS, capture, captured_sum, graphs, own_stream
from ranks import run_ranks

pytestmark = graphs


@pytest.fixture(params=MODES)
def mode(request, sim):
    return MODES[request.param]


@pytest.fixture(params=WAYS)
def count(request):
    return WAYS[request.param]


def behind_a_peer_that_dies(rank, size, count):
    stream, graph = captured_sum(rank, size, count)
    if rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    with stream:
        for _ in range(3):
            graph.replay()
    begin = time.monotonic()
    stream.synchronize()
    assert time.monotonic() - begin < 5
    with pytest.raises(dist.DistBackendError, match=r"rank 1\b") as caught:
        dist.all_reduce(torch.ones(3, device="sim"))
    with stream:  # later replays do not hang, either
        graph.replay()
    stream.synchronize()
    return str(caught.value)


def test_a_peer_that_dies_ends_replays(mode, count):
    said = run_ranks(behind_a_peer_that_dies, 3, count, environment=mode)
    assert said[1] == -signal.SIGKILL
    assert all("lost rank 1" in said[rank] for rank in (0, 2)), said


def alone(rank, size, count):
    stream, graph = captured_sum(rank, size, count)
    if rank == 0:
        with stream:
            graph.replay()
        stream.synchronize()
    else:
        time.sleep(3)
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(3, device="sim"))
    return str(caught.value)


def test_a_replay_that_the_others_do_not_make_times_out(sim, count):
    said = run_ranks(alone, 2, count, environment=DISCRETE, group_timeout=2)
    assert "replay of all_reduce #1" in said[0] and "timeout after 2000 ms, waiting for rank 1" in said[0], said
    assert "rank 0" in said[1], said


def aborted(rank, size, count):
    stream, graph = captured_sum(rank, size, count)
    if rank == 0:
        with stream:
            graph.replay()
        time.sleep(0.2)
        dist.group.WORLD.abort()
    else:
        time.sleep(1)
    stream.synchronize()
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(3, device="sim"))


def test_an_abort_ends_replays(sim, count):
    run_ranks(aborted, 2, count, environment=DISCRETE)


def refused(rank, size):
    stream = own_stream(rank)
    tensor = torch.ones(10, device="sim")
    peer = 1 - rank
    calls = {
        "send": lambda: dist.send(tensor, peer),
        "recv": lambda: dist.recv(tensor, peer),
    }
    for name, call in calls.items():
        with pytest.raises((RuntimeError, ValueError), match=f"{name} cannot be captured in a graph: .*outside the capture"):
            with capture(torch.accelerator.Graph(), stream):
                call()
    captured_sum(rank, size)  # the group is as good as before


def test_what_cannot_be_captured_is_refused(sim):
    run_ranks(refused, 2, environment=DISCRETE)


def without_streams(rank, size):
    stream = own_stream(rank)
    with pytest.raises(ValueError, match="all_reduce cannot be captured in a graph: .*a setting"):
        with capture(torch.accelerator.Graph(), stream):
            dist.all_reduce(torch.ones(10, device="sim"))
    dist.all_reduce(torch.ones(10, device="sim"))


def test_a_setting_that_keeps_streams_from_calls_is_named(sim):
    run_ranks(without_streams, 2, environment=DISCRETE | {"HCCL_LIKE_DIRECT": "0"})


def one_captures(rank, size):
    stream = own_stream(rank)
    tensor = torch.ones(1 << 20, device="sim")
    with pytest.raises(dist.DistBackendError, match="rank 0 captures all_reduce #1.* in a graph, and rank 1 does not"):
        if rank == 0:
            with capture(torch.accelerator.Graph(), stream):
                dist.all_reduce(tensor)
        else:
            dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=20))


def test_a_rank_that_captures_alone_is_named(sim):
    run_ranks(one_captures, 2, environment=DISCRETE)


def outlived(rank, size):
    """The graph is there when the group goes, and memory of captured calls goes with the graph."""
    stream, graph = captured_sum(rank, size)
    before = torch.accelerator.memory_allocated()
    again = torch.accelerator.Graph()
    with capture(again, stream):
        taken = torch.ones(1 << 20, device="sim") * 2
        dist.all_reduce(taken)
    with stream:
        again.replay()
    stream.synchronize()
    assert taken[0].item() == 2 * size
    del taken, again
    assert torch.accelerator.memory_allocated() == before
    dist.destroy_process_group()
    return graph.pool()


def test_a_group_may_be_destroyed_before_its_graphs(mode):
    run_ranks(outlived, 2, environment=mode)

"""Ranks are connected when a call first needs it, and know of each other's end without a connection."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hccl_like import _extension
from ranks import run_ranks

SHARED = "shm (when it is needed)"
STARTUP = Path(__file__).parents[2] / "bench" / "startup.py"


def links():
    return dist.group.WORLD._get_backend(torch.device("cpu"))._info()["links"]


def first_calls(rank, size):
    dist.barrier()
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [10.0] * 3
    assert links() == ["" if peer == rank else SHARED for peer in range(size)]
    dist.barrier()  # all have looked
    if rank == 1:
        dist.send(torch.tensor([7, 11]), dst=3)
    elif rank == 3:
        got = torch.zeros(2, dtype=torch.int64)
        dist.recv(got, src=1)
        assert got.tolist() == [7, 11]
    dist.barrier()
    connected = {1: 3, 3: 1}.get(rank)
    assert links() == ["" if peer == rank else "shm (same host)" if peer == connected else SHARED for peer in range(size)]


def test_only_ranks_that_send_to_each_other_are_connected():
    run_ranks(first_calls, 4)


def all_at_once(rank, size):
    assert links() == ["" if peer == rank else "shm (same host)" for peer in range(size)]


def test_all_ranks_are_connected_at_once_where_that_is_set():
    run_ranks(all_at_once, 4, environment={"HCCL_LIKE_CONNECT": "eager"})


def everybody_at_once(rank, size, transport):
    """All want each other at the same moment, from both ends."""
    sent = [torch.full((5,), 10 * rank + peer) for peer in range(size)]
    got = [torch.zeros(5, dtype=torch.int64) for _ in range(size)]
    others = [peer for peer in range(size) if peer != rank]
    calls = [dist.P2POp(dist.isend, sent[peer], peer) for peer in others]
    calls += [dist.P2POp(dist.irecv, got[peer], peer) for peer in others]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    for peer in others:
        assert got[peer].tolist() == [10 * peer + rank] * 5
    assert all(transport in link for peer, link in enumerate(links()) if peer != rank), links()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_ranks_that_want_each_other_at_the_same_time_get_one_connection(transport):
    run_ranks(everybody_at_once, 6, transport, environment={"HCCL_LIKE_TRANSPORTS": transport})


def sends_to_a_rank_in_no_call(rank, size):
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.full((4,), 5.0 * rank)
    if rank == 0:
        dist.send(tensor, dst=1)
        store.set("sent", "1")
    else:
        store.wait(["sent"], timedelta(seconds=20))
        dist.recv(tensor, src=0)
        assert tensor.tolist() == [0.0] * 4


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_short_message_leaves_though_its_receiver_is_in_no_call(transport):
    run_ranks(sends_to_a_rank_in_no_call, 2, environment={"HCCL_LIKE_TRANSPORTS": transport})


def survivors(rank, size, victim, call):
    dist.barrier()
    assert not any("same host" in link for link in links())
    if rank == victim:
        store = dist.distributed_c10d._get_default_store()
        for peer in range(size):
            if peer != victim:
                store.wait([f"in{peer}"], timedelta(seconds=20))
        time.sleep(0.2)  # they are in the call, and asleep
        store.set("killed", str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"in{rank}", "")
    try:
        call(rank)
    except Exception as error:
        text, at = str(error), time.monotonic()
        late = at - float(store.get("killed"))
        store.set(f"out{rank}", "")
        if rank == 0:  # whose process is the store
            store.wait([f"out{peer}" for peer in range(1, size) if peer != victim], timedelta(seconds=20))
        return late, text
    return None, "no error"


def reduce_all(rank):
    dist.all_reduce(torch.ones(2))


def reduce_much(rank):
    dist.all_reduce(torch.ones(1 << 20))


@pytest.mark.parametrize("call", [reduce_all, reduce_much])
@pytest.mark.parametrize("victim", [3, 5])
def test_a_rank_that_dies_before_anybody_is_connected_to_it_is_missed_at_once(victim, call):
    answers = run_ranks(survivors, 6, victim, call)
    for rank, answer in enumerate(answers):
        if rank == victim:
            assert answer == -signal.SIGKILL
            continue
        late, text = answer
        assert late is not None and late < 1, (rank, late, text)
        assert f"lost rank {victim} (" in text, text


@pytest.mark.slow
def test_sixty_four_ranks_start_with_little():
    command = [sys.executable, STARTUP, "--ranks", "64", "--rounds", "1", "--json"]
    ours, gloo = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert ours["threads"] == 2 < gloo["threads"]
    listeners = len(_extension.load()._addresses())
    assert ours["descriptors"] <= 13 + listeners and ours["descriptors"] < gloo["descriptors"]

"""suspend() and resume() where something is in the way: calls in flight, memory in use, ranks that do not come."""

import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import hccl_like
from graphs import DISCRETE, captured_sum, graphs
from ranks import run_ranks
from test_suspend import add_up

# ------------------------------------------------------------------------------------------- what cannot be suspended


def waits_for_calls(rank, size, device):
    if rank == 1:
        time.sleep(0.3)
    tensor = torch.ones(50_000, device=device)
    work = dist.all_reduce(tensor, async_op=True)
    hccl_like.suspend(timeout=20)
    assert work.is_completed()
    assert (tensor.cpu() == size).all()
    hccl_like.resume(timeout=20)
    add_up(device=device)


def test_calls_in_flight_end_first(device):
    run_ranks(waits_for_calls, 2, device)


def refused(match, timeout=20.0):
    """All ranks get the same error, and can go on."""
    with pytest.raises(dist.DistBackendError, match=match) as caught:
        hccl_like.suspend(timeout=timeout)
    assert "nothing was closed" in str(caught.value)


def suspends():
    hccl_like.suspend(timeout=20)
    hccl_like.resume(timeout=20)
    add_up()


def is_in_flight(rank, size):
    work = dist.irecv(torch.zeros(3), 0) if rank == 1 else None
    refused("rank 1 cannot suspend: .*still running at the deadline.*wait for them", timeout=0.5)
    if rank == 0:
        dist.send(torch.ones(3), 1)
    else:
        work.wait()
    add_up()
    suspends()


def test_a_call_that_does_not_end_is_refused_at_the_deadline():
    run_ranks(is_in_flight, 2)


def thread_is_in_call(rank, size):
    taken = torch.zeros(3)
    thread = threading.Thread(target=dist.recv, args=(taken, 0))
    if rank == 1:
        thread.start()
        time.sleep(0.3)
    refused("rank 1 cannot suspend: .*still", timeout=0.5)
    if rank == 0:
        dist.send(torch.ones(3), 1)
    else:
        thread.join()
        assert (taken == 1).all()
    suspends()


def test_a_thread_in_a_call_is_refused_at_the_deadline():
    run_ranks(thread_is_in_call, 2)


def has_messages_left(rank, size):
    if rank == 0:
        dist.send(torch.ones(3), 1, tag=5)
    refused(r"rank 0 of group '0' has sent 1 messages to rank 1, which has received 0 of them; receive all")
    if rank == 1:
        dist.recv(torch.zeros(3), None, tag=5)
    suspends()


def test_a_message_that_nobody_has_received_is_refused():
    run_ranks(has_messages_left, 2)


def has_calls_left(rank, size):
    tensor = torch.ones(3)
    if rank == 0:
        dist.broadcast(tensor, 0)
    refused(r"rank 1 of group '0' has made 0 collective calls on host tensors, rank 0 1; make the missing calls")
    if rank == 1:
        dist.broadcast(tensor, 0)
    suspends()


def test_a_call_that_a_rank_has_not_made_is_refused():
    run_ranks(has_calls_left, 2, environment={"HCCL_LIKE_TRANSPORTS": "tcp"})  # a short broadcast ends at its root


def has_memory(rank, size):
    symmetric = symm_mem.empty(1000, device="cpu")
    handle = symm_mem.rendezvous(symmetric, dist.group.WORLD.group_name)
    refused("rank 0 cannot suspend: .*symmetric memory is in use.* free its tensors")
    del symmetric, handle
    dist.group.WORLD._start_coalescing(torch.device("cpu"))
    refused("rank 0 cannot suspend: .*coalescing block is open; end it first")
    dist.group.WORLD._end_coalescing(torch.device("cpu"))
    suspends()


def test_symmetric_memory_and_open_blocks_are_refused():
    run_ranks(has_memory, 2)


def has_graph(rank, size):
    stream, graph = captured_sum(rank, size)
    refused("rank 0 cannot suspend: .*a graph of the device has captured calls.* destroy the group and its graphs")
    with stream:  # it can be replayed still
        graph.replay()
    stream.synchronize()


@graphs
def test_captured_calls_are_refused(sim):
    run_ranks(has_graph, 2, environment=DISCRETE)


# -------------------------------------------------------------------------------------------------------- missing ranks


def does_not_suspend(rank, size, missing):
    store = dist.distributed_c10d._get_default_store()
    begin = time.monotonic()
    if rank != missing:
        refused(f"rank {missing} of group '0' did not call suspend\\(\\) within 0.5 s", timeout=0.5)
        store.set(f"raised/{rank}", "")
    else:
        store.wait([f"raised/{other}" for other in range(size) if other != missing])
    assert time.monotonic() - begin < 15
    add_up()
    hccl_like.suspend(timeout=20)  # the rank that has missed an attempt takes part in the next
    hccl_like.resume(timeout=20)
    add_up()


@pytest.mark.parametrize("missing", [0, 2])
def test_a_rank_that_does_not_suspend_is_named(missing):
    run_ranks(does_not_suspend, 3, missing)


def comes_late(rank, size):
    store = dist.distributed_c10d._get_default_store()
    hccl_like.suspend(timeout=20)
    if rank < 2:
        store.set(f"resumes/{rank}", "")
        store.wait(["resumes/0", "resumes/1"])
        with pytest.raises(dist.DistStoreError, match=r"could not resume process group '0' on rank \d.* waiting for ranks \[2\]"):
            hccl_like.resume(timeout=2)
        with pytest.raises(ValueError, match="suspended"):
            dist.barrier()
        store.set(f"raised/{rank}", "")
    else:
        store.wait(["raised/0", "raised/1"])
    hccl_like.resume(timeout=20)
    add_up()


def test_a_rank_that_does_not_resume_is_named_and_may_come_later():
    run_ranks(comes_late, 3)


def dies(rank, size):
    hccl_like.suspend(timeout=20)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistStoreError, match=r"waiting for ranks \[1\]"):
        hccl_like.resume(timeout=1)
    dist.destroy_process_group()
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    dist.init_process_group("hccl-like", store=store, rank=0, world_size=1)  # destroyed groups refuse no new ones
    add_up()


def test_resume_names_a_rank_that_has_died():
    assert run_ranks(dies, 3)[1] == -signal.SIGKILL

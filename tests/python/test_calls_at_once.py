"""Small calls on host tensors, which the caller's thread makes without the engine, look like all others from outside."""

import pytest
import torch
import torch.distributed as dist

import hccl_like
from ranks import run_ranks


def last_entry(name):
    return [entry for entry in hccl_like.dump_flight_recorder()["entries"] if entry["profiling_name"] == name][-1]


def synchronous(rank, size):
    dist.barrier()
    options = dist.AllreduceOptions()
    options.asyncOp = False
    tensor = torch.arange(3.0) + rank
    before = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    work = dist.group.WORLD.allreduce([tensor], options)
    after = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    return work, tensor.tolist(), after - before, last_entry("hccl:all_reduce")


@pytest.mark.parametrize("size", [2, 3])
def test_a_synchronous_call_is_over_and_gives_no_work(size):
    for work, values, calls, entry in run_ranks(synchronous, size):
        assert work is None
        assert values == [sum(i + rank for rank in range(size)) for i in range(3)]
        assert calls == 1
        assert entry["state"] == "completed"
        assert entry["retired"] and entry["duration_ms"] >= 0
        assert entry["time_created_ns"] <= entry["time_discovered_completed_ns"]
        assert entry["input_sizes"] == [[3]] and entry["output_sizes"] == [[3]]


def received(rank, size):
    """The message is there before the receive that asks for it, so the receive is over at once."""
    if rank == 0:
        dist.send(torch.tensor([7.0, 8.0]), 1)
        dist.barrier()
        return None
    dist.barrier()
    into = torch.zeros(2)
    work = dist.irecv(into, 0)
    work.wait()
    return into.tolist(), work._source_rank(), work.is_completed(), work.is_success(), work._get_duration() >= 0


def test_a_message_that_is_there_is_received_at_once():
    assert run_ranks(received, 2)[1] == ([7.0, 8.0], 0, True, True, True)


def never_waited_for(rank, size):
    """Nobody waits for these, and the other ranks need nothing more of this one."""
    dist.barrier()
    works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(50)]
    while not all(work.is_completed() for work in works):
        pass
    return [work.result()[0].tolist() for work in works]


def test_asynchronous_calls_end_though_nobody_waits():
    for results in run_ranks(never_waited_for, 2):
        assert results == [[2.0, 2.0]] * 50

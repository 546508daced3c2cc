"""What profilers see of calls: one asynchronous event each, and torch's record_param_comms."""

import json
import os
import tempfile

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks


def events_of(profile, name):
    return [event for event in profile.function_events if event.name == name]


def records_of(profile):
    """The arguments of the record_param_comms events, in order, as a trace shows them."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    records = sorted((e for e in events if e.get("name") == "record_param_comms"), key=lambda e: e["ts"])
    return [record["args"] for record in records]


def one_event_a_call(rank, size, device):
    ones = torch.ones(3, 2, device=device)
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(ones)
        dist.all_reduce(ones, async_op=True).wait()
        dist.all_gather([torch.empty(3, 2, device=device) for _ in range(size)], ones)
        if rank == 0:
            dist.send(ones, 1)
        elif rank == 1:
            dist.recv(torch.empty(3, 2, device=device), 0)
        dist.all_reduce(torch.ones(5, dtype=torch.complex64, device=device))
        dist.reduce(torch.ones(5, dtype=torch.complex64, device=device), 0)
        dist.all_reduce_coalesced([ones, torch.ones(7, device=device)])
    reduced = events_of(profile, "hccl-like:all_reduce")
    assert [event.input_shapes for event in reduced] == [[[3, 2]], [[3, 2]], [[5, 2]]], "complex: as it arrives, real"
    assert [event.input_shapes for event in events_of(profile, "hccl-like:all_gather")] == [[[3, 2]]]
    assert [event.input_shapes for event in events_of(profile, "hccl-like:reduce")] == [[[5]]]
    assert [event.input_shapes for event in events_of(profile, "hccl-like:all_reduce_coalesced")] == [[[3, 2], [7]]]
    message = events_of(profile, "hccl-like:send" if rank == 0 else "hccl-like:recv")
    assert [event.input_shapes for event in message] == [[[3, 2]]]
    ours = [event for event in profile.function_events if event.name.startswith("hccl-like:")]
    assert len(ours) == 7
    assert all(event.is_async and event.count == 1 and event.cpu_time >= 0 for event in ours)


def test_each_call_is_one_asynchronous_event_with_the_shapes_of_its_inputs(device):
    run_ranks(one_event_a_call, 2, device)


def the_event_of_a_call_nobody_waits_for(rank, size):
    with torch.autograd.profiler.profile() as profile:
        first = dist.all_reduce(torch.ones(3), async_op=True)
        second = dist.all_reduce(torch.ones(3), async_op=True)
        while not (first.is_completed() and second.is_completed()):
            pass
    assert len(events_of(profile, "hccl-like:all_reduce")) == 2


def test_the_event_ends_without_a_wait():
    run_ranks(the_event_of_a_call_nobody_waits_for, 2)


def all_records(rank, size, device):
    third = dist.new_group([0, 2], group_desc="even")
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(4, 5, device=device))
        if rank != 1:
            dist.broadcast(torch.ones(6, dtype=torch.int32, device=device), 2, group=third)
        dist.all_gather_into_tensor(torch.empty(12, device=device), torch.ones(4, device=device), async_op=True).wait()
        dist.all_to_all_single(
            torch.empty(3 * (rank + 1), device=device),
            torch.ones(6, device=device),
            [rank + 1] * 3,
            [1, 2, 3],
        )
        parts = [torch.ones(2, dtype=torch.float64, device=device) for _ in range(3)] if rank == 1 else None
        dist.scatter(torch.empty(2, dtype=torch.float64, device=device), parts, 1)
        if rank == 0:
            dist.send(torch.ones(5, device=device), 2)
        elif rank == 2:
            dist.recv(torch.empty(5, device=device), 0)
        dist.barrier()
    return [record for record in records_of(profile) if record["Collective name"] != "wait"]


def shown(record):
    keys = ["Collective name", "In msg nelems", "Out msg nelems", "dtype", "Process Group Name", "Group size"]
    return tuple(record[key] for key in keys)


def test_records_tell_what_trace_readers_ask_for(device):
    ranks = run_ranks(all_records, 3, device)
    assert [shown(record) for record in ranks[0]] == [
        ("allreduce", 20, 20, "Float", "0", 3),
        ("broadcast", 6, 6, "Int", "1", 2),
        ("_allgather_base", 4, 12, "Float", "0", 3),
        ("all_to_allv", 6, 3, "Float", "0", 3),
        ("scatter", 6, 2, "Double", "0", 3),
        ("send", 5, 5, "Float", "0", 3),
        ("barrier", 0, 0, "Byte", "0", 3),
    ]
    assert [record["Collective name"] for record in ranks[1]] == [
        "allreduce", "_allgather_base", "all_to_allv", "scatter", "barrier",
    ]  # fmt: skip
    assert ranks[2][5]["Collective name"] == "recv"
    assert ranks[0][1]["Process Group Description"] == "even"
    assert ranks[0][0]["Process Group Description"] == "default_pg"
    assert ranks[0][0]["Process Group Ranks"] == "[0, 1, 2]"
    assert ranks[0][1]["Process Group Ranks"] == "[0, 2]"
    splits = ranks[1][2]
    assert (splits["In split size"], splits["Out split size"]) == ("[1, 2, 3]", "[2, 2, 2]")
    numbers = [[record["Seq"] for record in records] for records in ranks]
    assert numbers[0] == [1, 1, 2, 3, 4, 1, 5], "the sub-group and messages count for themselves"
    assert numbers[1] == [1, 2, 3, 4, 5]
    assert [record["Rank"] for record in ranks[0]][4:6] == [1, 2], "the root of a scatter, the other end of a message"
    asynchronous = [record["Is asynchronized op"] for record in ranks[0]]
    assert asynchronous == [False, False, True, False, False, True, False]


def waits(rank, size):
    with torch.profiler.profile() as profile:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        work.wait()
        with dist._coalescing_manager(async_ops=True) as block:
            dist.all_reduce(torch.ones(4))
            dist.all_reduce(torch.ones(5))
        block.wait()
        operations = [dist.P2POp(dist.isend, torch.ones(2), 1 - rank), dist.P2POp(dist.irecv, torch.empty(2), 1 - rank)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    return records_of(profile), [e.name for e in profile.events() if e.name.startswith("hccl-like:")]


def test_waits_and_blocks_are_recorded():
    for records, events in run_ranks(waits, 2):
        told = [(record["Collective name"], record["Seq"]) for record in records]
        assert told == [
            ("allreduce", 1),
            ("wait", 1),
            ("allreduce_coalesced", 2),
            ("wait", 2),
            ("send", 1),
            ("recv", 1),
            ("wait", 1),
        ], "the calls of a block share their number"
        assert events == ["hccl-like:all_reduce", "hccl-like:all_reduce_coalesced", "hccl-like:coalesced"]


if __name__ == "__main__":
    pytest.main([__file__])

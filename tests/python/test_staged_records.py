"""What the flight recorder keeps of a call that goes in slices: one entry, of the whole call."""

import re
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hccl_like
from streams import Gate
from test_staged_calls import COUNT, IN_SLICES, SLICE, mine, operations, staged, timeout_of

BANDWIDTH = 4 << 20  # bytes a second, so that a copy of a slice takes 31 ms at least


def entries():
    return hccl_like.dump_flight_recorder()["entries"]


def every_kind(rank, size):
    other, splits = 1 - rank, [COUNT, 2 * COUNT] if rank == 0 else [2 * COUNT, COUNT]
    large = torch.ones(COUNT, device="sim")
    calls = [
        ("hccl:all_reduce", [[COUNT]], lambda: dist.all_reduce(large)),
        ("hccl:all_reduce", [[7]], lambda: dist.all_reduce(torch.ones(7, device="sim"))),
        ("hccl:all_to_all", [[3 * COUNT]], lambda: dist.all_to_all_single(
            torch.empty(sum(splits), device="sim"), torch.ones(3 * COUNT, device="sim"), splits, splits)),
        (f"hccl:send {rank}->{other}" if rank == 0 else f"hccl:recv {rank}<-{other}", [[COUNT]],
         lambda: dist.send(large, other) if rank == 0 else dist.recv(large, other)),
        ("hccl:broadcast", [[COUNT]], lambda: dist.broadcast(large, 1, async_op=True).wait()),
    ]  # fmt: skip
    began = time.time_ns()
    # Messages are numbered apart, and the later slices of uneven calls bear the number of the call.
    assert [operations(call) for _, _, call in calls] == [4, 1, 1, 0, 4]
    kept = entries()
    assert [(entry["profiling_name"], entry["input_sizes"]) for entry in kept] == [call[:2] for call in calls]
    assert [entry["op_id"] for entry in kept] == [1, 2, 3, 4, 5]
    assert [entry["collective_seq_id"] for entry in kept] == [1, 2, 3, 3, 4]
    last = began
    for entry in kept:
        assert (entry["state"], entry["retired"]) == ("completed", True)
        assert last <= entry["time_created_ns"] <= entry["time_discovered_started_ns"]
        last = entry["time_discovered_completed_ns"]
        assert last == pytest.approx(entry["time_discovered_started_ns"] + entry["duration_ms"] * 1e6, abs=1e3)


def test_a_call_in_slices_is_one_entry_with_the_sizes_of_the_whole(sim):
    staged(every_kind, 2)


def with_its_copies(rank, size):
    dist.all_reduce(torch.ones(COUNT, device="sim"))
    (entry,) = entries()
    # The first copy in and the last copy out are before and after anything on the network.
    assert entry["duration_ms"] >= 1000 * (COUNT * 4 + SLICE / 2) / BANDWIDTH


def test_the_time_of_a_call_in_slices_is_that_of_its_copies_too(sim):
    staged(with_its_copies, 2, environment=IN_SLICES | {"TORCH_SIM_HOST_GBPS": str(BANDWIDTH / 1e9)})


def stopped_after_a_slice(rank, size):
    """Rank 1's device, which has one stream, is held up behind the first copy."""
    store = dist.distributed_c10d._get_default_store()
    work = dist.group.WORLD.allreduce([mine(rank).to("sim")], timeout_of(1.0 if rank == 0 else 20.0))
    if rank == 1:
        while torch.sim.current_stream().query():
            pass
        gate = Gate()
        store.wait(["timed out"], timedelta(seconds=20))
        store.set("heard", "")
        gate.open()
        with pytest.raises(dist.DistBackendError):
            work.wait()
    else:
        (entry,) = entries()
        assert entry["state"] in ("scheduled", "started") and not entry["retired"]
        with pytest.raises(dist.DistBackendError, match="timeout") as error:
            work.wait()
        print(error.value)
        store.set("timed out", "")
        store.wait(["heard"], timedelta(seconds=20))  # rank 0 has the server
    (entry,) = entries()
    assert (entry["profiling_name"], entry["input_sizes"]) == ("hccl:all_reduce", [[COUNT]])
    assert (entry["state"], entry["retired"]) == ("started", True)
    assert entry["time_created_ns"] <= entry["time_discovered_started_ns"]
    assert entry["time_discovered_completed_ns"] is None
    dist.group.WORLD.abort()
    dist.destroy_process_group()


def test_a_call_that_times_out_between_slices_is_one_entry_that_has_started(sim):
    one_stream = {"TORCH_SIM_FLAWS": "no-streams", "TORCH_SIM_HOST_GBPS": str(BANDWIDTH / 1e9)}
    staged(stopped_after_a_slice, 2, environment=lambda rank: IN_SLICES | (one_stream if rank == 1 else {}))

"""Wrong use gives an error that says what to do, and nobody hangs."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import hccl_like
from ranks import make_store, run_ranks


def wrong_tensors(rank, size, device):
    """Each is refused by all ranks before anything is sent, so the group stays good."""
    ones = torch.ones(4, device=device)
    world = dist.group.WORLD
    with pytest.raises(ValueError, match="overlaps itself"):
        dist.all_reduce(torch.ones(1, device=device).expand(4))
    with pytest.raises(ValueError, match="needed: 4 from each of the 2 ranks"):
        dist.all_gather_into_tensor(torch.zeros(7, device=device), ones)
    with pytest.raises(ValueError, match="has 7 elements, 8 are needed"):
        dist.reduce_scatter_tensor(ones, torch.zeros(7, device=device))
    with pytest.raises(ValueError, match="2 output tensors, one for each rank, are needed, got 1"):
        dist.all_gather([ones.clone()], ones)
    with pytest.raises(ValueError, match="cannot be cut in 2 equal parts"):
        dist.all_to_all_single(torch.zeros(3, device=device), torch.zeros(3, device=device))
    with pytest.raises(ValueError, match="add up to 3, but float32.4. has 4 rows"):
        dist.all_to_all_single(ones.clone(), ones, [2, 2], [2, 1])
    with pytest.raises(TypeError, match="same dtype"):
        world._allgather_base(torch.zeros(8, dtype=torch.int32, device=device), ones).wait()
    with pytest.raises(TypeError, match="band is not defined on float32"):
        dist.all_reduce(ones.clone(), dist.ReduceOp.BAND)
    with pytest.raises(TypeError, match="cannot be reduced; convert them first"):
        dist.all_reduce(torch.zeros(4, dtype=torch.float8_e4m3fnuz))
    with pytest.raises(ValueError, match="one tensor is needed, got 2"):
        world.allreduce([ones, ones.clone()])
    with pytest.raises(ValueError, match="a tag must not be negative"):
        world.send([ones], 1 - rank, -1)
    with pytest.raises(ValueError, match="only the root passes|the root must pass a list of 2"):
        world.gather([ones.clone()], ones, 0)
    with pytest.raises(ValueError, match="rank 5 is not in group"):
        options = dist.BroadcastOptions()
        options.rootRank = 5
        world.broadcast([ones], options)
    with pytest.raises(ValueError, match="not served|No backend"):
        raise_for_meta(world)
    dist.all_reduce(ones)
    assert ones.cpu().eq(2).all(), "the group works on"


def raise_for_meta(world):
    try:
        world._get_backend(torch.device("cpu")).allreduce([torch.ones(3, device="meta")])
    except TypeError as error:  # torch's own words for a call that it does not take
        raise ValueError("No backend") from error


def test_wrong_tensors_are_told_what_is_wrong(device):
    run_ranks(wrong_tensors, 2, device)


def mixed_devices(rank, size):
    with pytest.raises(ValueError, match="must be on one device, got sim:0 and cpu"):
        dist.all_gather([torch.zeros(3, device="sim"), torch.zeros(3)], torch.zeros(3, device="sim"))


def test_mixed_devices_are_refused(sim):
    run_ranks(mixed_devices, 2)


def different_sizes(rank, size, device):
    with pytest.raises(RuntimeError) as caught:
        tensor = torch.ones(10 + rank, device=device)
        dist.all_reduce(tensor)
        if device != "cpu":
            torch.sim.synchronize()
            dist.all_reduce(torch.ones(1, device=device))
    text = str(caught.value)
    assert "all_reduce of float32 (sum): rank 0 passed 10 elements, rank 1 passed 11 elements" in text, text
    assert "Every rank must make the same calls" in text
    return text


def test_different_sizes_are_an_error_at_once(device):
    begin = time.monotonic()
    run_ranks(different_sizes, 2, device)
    assert time.monotonic() - begin < 20, "the error must not wait for the time-out"


def different_calls(rank, size):
    with pytest.raises(RuntimeError, match="Every rank must make the same calls"):
        if rank == 0:
            dist.all_reduce(torch.ones(8))
        else:
            dist.broadcast(torch.ones(8), 0)


def test_different_calls_are_an_error_at_once():
    run_ranks(different_calls, 2)


# What the last of three ranks does otherwise: what it calls, what the others call, and the words for both.
DISAGREEMENTS = {
    "type": (
        lambda group: dist.all_reduce(torch.ones(7, dtype=torch.int32), group=group),
        lambda group: dist.all_reduce(torch.ones(7), group=group),
        "all_reduce of int32 (sum)",
        "all_reduce of float32 (sum)",
    ),
    "operation": (
        lambda group: dist.all_reduce(torch.ones(7), dist.ReduceOp.MAX, group=group),
        lambda group: dist.all_reduce(torch.ones(7), group=group),
        "float32 (max)",
        "float32 (sum)",
    ),
    "root": (
        lambda group: dist.broadcast(torch.ones(7), src=2, group=group),
        lambda group: dist.broadcast(torch.ones(7), src=0, group=group),
        "with root 2",
        "with root 0",
    ),
    "root of many bytes": (
        lambda group: dist.reduce(torch.ones(1 << 20), dst=2, group=group),
        lambda group: dist.reduce(torch.ones(1 << 20), dst=1, group=group),
        "with root 2",
        "with root 1",
    ),
    "collective": (
        lambda group: dist.barrier(group=group),
        lambda group: dist.all_reduce(torch.ones(7), group=group),
        "barrier",
        "all_reduce of float32 (sum)",
    ),
    "split": (
        lambda group: dist.all_to_all_single(torch.ones(31), torch.ones(30), [10, 11, 10], [10, 10, 10], group=group),
        lambda group: dist.all_to_all_single(torch.ones(30), torch.ones(30), [10, 10, 10], [10, 10, 10], group=group),
        "all_to_all",
        "all_to_all",
    ),
    "its own part": (
        lambda group: dist.all_to_all_single(torch.ones(31), torch.ones(30), [10, 10, 11], [10, 10, 10], group=group),
        lambda group: dist.all_to_all_single(torch.ones(30), torch.ones(30), [10, 10, 10], [10, 10, 10], group=group),
        "gives itself 40 bytes and expects 44",
        "gives itself 40 bytes and expects 44",
    ),
}


def disagreements(rank, size):
    groups = {name: dist.new_group() for name in DISAGREEMENTS}
    for name, (other, usual, *words) in DISAGREEMENTS.items():
        dist.barrier(group=groups[name])
        with pytest.raises(dist.DistBackendError) as caught:
            begin = time.monotonic()
            (other if rank == size - 1 else usual)(groups[name])
            # A rank that has sent its part and got all of its own hears of it in its next call.
            dist.barrier(group=groups[name])
        assert time.monotonic() - begin < 20, f"{name}: the error must not wait for the time-out"
        for word in words:
            assert word in str(caught.value), name
        assert hccl_like.failure(str(caught.value)).number in (501, 502), name
        dist.barrier()  # other groups go on


def test_every_disagreement_is_an_error_on_all_ranks_with_the_words_of_both_sides():
    run_ranks(disagreements, 3)


def two_roots(rank, size):
    dist.broadcast(torch.ones(7), src=rank)
    with pytest.raises(dist.DistBackendError, match="with root [01].*with root [01]"):
        dist.all_reduce(torch.ones(7))


def test_two_roots_that_expect_nothing_of_each_other_are_told_in_the_next_call():
    run_ranks(two_roots, 2, environment={"HCCL_LIKE_BOARD": "0"})


def one_rank_stays_away(rank, size, device):
    if rank == 1:
        with pytest.raises(RuntimeError):
            time.sleep(3)  # long enough that its watchdog answers before it makes the call
            dist.all_reduce(torch.ones(3))
        return
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="caught collective operation timeout: rank 0 of group 0: all_reduce #1 .* reached its timeout after .*alive\\? Rank 1 \\S+ never made it; it is at ") as caught:
        dist.all_reduce(torch.ones(3, device=device))
        torch.sim.synchronize()
        dist.all_reduce(torch.ones(3, device=device))
    assert 0.9 < time.monotonic() - begin < 5
    assert "rank 1" in str(caught.value) or "ranks 1" in str(caught.value), caught.value


def test_a_missing_rank_is_named_when_time_is_up(device):
    run_ranks(one_rank_stays_away, 2, device, group_timeout=1, environment={"HCCL_LIKE_REPORT_MS": "1800"})


def world_never_arrives(rank, size, listener):
    store = make_store(rank, listener)
    begin = time.monotonic()
    with pytest.raises(Exception) as caught:
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size + 2, timeout=timedelta(seconds=2))
    assert time.monotonic() - begin < 10
    text = str(caught.value)
    assert "2" in text and "3" in text, text
    # Nobody may leave while the others still look at rank 0's store.
    store.add("left", 1)
    while rank == 0 and store.add("left", 0) < size:
        time.sleep(0.05)


def test_ranks_that_never_come_are_named():
    run_ranks(world_never_arrives, 2, group=False)


def monitored(rank, size, wait_all_ranks):
    group = dist.group.WORLD
    group.monitored_barrier(timedelta(seconds=20))
    if rank == 0:
        missing = "Ranks 1, 2 failed" if wait_all_ranks else "Rank 1 failed"
        with pytest.raises(RuntimeError, match=missing + " to pass monitoredBarrier"):
            group.monitored_barrier(timedelta(milliseconds=200), wait_all_ranks=wait_all_ranks)
    dist.barrier()


@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_a_monitored_barrier_names_who_is_missing_and_harms_nothing(wait_all_ranks):
    run_ranks(monitored, 3, wait_all_ranks)


def open_block(rank, size, device):
    world = dist.group.WORLD
    world._start_coalescing(torch.device(device))
    with pytest.raises(ValueError, match="blocks do not nest"):
        world._start_coalescing(torch.device(device))
    work = dist.isend(torch.ones(2, device=device), 1) if rank == 0 else dist.irecv(torch.zeros(2, device=device), 0)
    with pytest.raises(ValueError, match="leave the block"):
        work.wait()
    world._end_coalescing(torch.device(device)).wait()
    with pytest.raises(ValueError, match="no coalescing block is open"):
        world._end_coalescing(torch.device(device))


def test_coalescing_blocks_are_checked(device):
    run_ranks(open_block, 2, device)


def after_destroy(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="was destroyed; make a new one"):
        backend.allreduce([torch.ones(1)])


def test_a_destroyed_group_says_so():
    run_ranks(after_destroy, 2)


def foreign_options(rank, size, listener):
    store = make_store(rank, listener)
    with pytest.raises(TypeError, match="hccl_like.Options"):
        dist.init_process_group(
            "hccl-like", store=store, rank=rank, world_size=size, pg_options=dist.ProcessGroupGloo._Options()
        )


def test_options_of_another_backend_are_refused():
    run_ranks(foreign_options, 1, group=False)

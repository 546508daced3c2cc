"""Algorithms of users in jobs: exact results on every path, registration, and ranks that do not agree."""

import os
import sys

import own
import pytest
import torch
import torch.distributed as dist

import hccl_like
import hccl_like.schedule
import values
from conftest import slow_after_first
from plugins import run
from ranks import run_ranks
from test_device_streams import copied_bytes

EVERYWHERE = {"HCCL_LIKE_ALGO": own.EVERYWHERE}


def everything(rank, size, device, dtypes, counts, group=None):
    for dtype in dtypes:
        for count in counts:
            every_collective(rank, size, device, dtype, count, group)


def every_collective(rank, size, device, dtype, count, group):
    def of(which, elements=count, start=0):
        return values.plain(which, elements, dtype, start)

    def check(found, expected):
        assert values.equal(found, expected), (dtype, count)

    everyone = range(size)
    mine = of(rank).to(device)
    summed = mine.clone()
    dist.all_reduce(summed, group=group)
    check(summed, values.total([of(r) for r in everyone]))
    check(mine, of(rank))

    for root in (0, size - 1):
        given = mine.clone()
        dist.broadcast(given, root, group=group)
        check(given, of(root))
        reduced = mine.clone()
        dist.reduce(reduced, root, group=group)
        if rank == root:
            check(reduced, values.total([of(r) for r in everyone]))

    gathered = torch.zeros(size * count, dtype=dtype, device=device)
    dist.all_gather_into_tensor(gathered, mine, group=group)
    check(gathered, torch.cat([of(r) for r in everyone]))
    gathered.zero_()
    own_part = gathered[rank * count : (rank + 1) * count]
    own_part.copy_(mine)
    dist.all_gather_into_tensor(gathered, own_part, group=group)  # in place
    check(gathered, torch.cat([of(r) for r in everyone]))

    whole = of(rank, size * count).to(device)
    part = torch.zeros(count, dtype=dtype, device=device)
    dist.reduce_scatter_tensor(part, whole, group=group)
    check(part, values.total([of(r, count, rank * count) for r in everyone]))
    exchanged = torch.zeros_like(whole)
    dist.all_to_all_single(exchanged, whole, group=group)
    check(exchanged, torch.cat([of(r, count, rank * count) for r in everyone]))


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_results_are_exact(size, device, transport):
    dtypes = [torch.float32] if size == 8 else [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e5m2]
    counts = [1, size - 1, 1001] if size == 8 else [0, 1, size - 1, size + 1, 1001, 70_001]
    run_ranks(everything, size, device, dtypes, counts, environment=EVERYWHERE | transport, timeout=120)


def by_options(rank, size):
    options = hccl_like.Options(algorithms="allreduce:my_gathered;broadcast:my_star")
    group = dist.new_group(pg_options=options)
    for device in ("cpu", "sim"):
        every_collective(rank, size, device, torch.float32, 333, group)
    average = torch.full((10,), float(rank), device="sim")
    dist.all_reduce(average, dist.ReduceOp.AVG, group=group)
    assert average.tolist() == [(size - 1) / 2] * 10
    parts = [torch.full((rank + 1,), float(rank)) for rank in range(size)]
    dist.all_reduce_coalesced(parts, group=group)
    assert [part.tolist() for part in parts] == [[float(r * size)] * (r + 1) for r in range(size)]
    dist.all_reduce(torch.ones(1))  # in the default group, without it


def test_a_group_may_have_an_algorithm_of_its_own(sim):
    run_ranks(by_options, 3)


def uneven(rank, size):
    counts = [(rank + 1) * (peer + 2) for peer in range(size)]
    given = torch.cat([torch.full((count,), float(10 * rank + peer)) for peer, count in enumerate(counts)])
    taken = [(peer + 1) * (rank + 2) for peer in range(size)]
    got = torch.empty(sum(taken))
    dist.all_to_all_single(got, given, taken, counts)
    assert got.tolist() == [float(10 * peer + rank) for peer, count in enumerate(taken) for _ in range(count)]


def test_uneven_splits_take_it_too():
    run_ranks(uneven, 3, environment=EVERYWHERE)


def by_streams(rank, size):
    everything(rank, size, "sim", [torch.float32, torch.int64], [1001, 300_001])
    tensor = torch.full((600_000,), float(rank + 1), device="sim")
    torch.sim.synchronize()
    before = copied_bytes()
    dist.all_reduce(tensor)
    torch.sim.synchronize()
    assert copied_bytes() == before, "the call went through the host"
    assert tensor.unique().tolist() == [size * (size + 1) / 2]
    dist.all_reduce(tensor, dist.ReduceOp.AVG)  # which streams cannot, for a schedule that adds in several steps
    assert tensor.unique().tolist() == [size * (size + 1) / 2]


@pytest.mark.parametrize("size", slow_after_first([2, 3, 4]))
def test_streams_of_devices_run_it(size, sim, stripped):
    run(by_streams, size, stripped, "map", environment=EVERYWHERE, timeout=120)


def on_two_hosts(rank, size):
    everything(rank, size, "cpu", [torch.float32], [1, 1001])


def test_it_runs_between_hosts(make_hosts):
    run_ranks(on_two_hosts, 4, environment=EVERYWHERE, hosts=make_hosts(2), layout=[0, 0, 1, 1])


def sub_groups(rank, size):
    pair = dist.new_group([0, 1])
    alone = [dist.new_group([r]) for r in range(size)][rank]
    tensor = torch.ones(7)
    for group in (dist.group.WORLD, alone, *([pair] if rank < 2 else [])):
        dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [size * (2 if rank < 2 else 1)] * 7


def test_groups_of_other_sizes_have_it_made_anew():
    run_ranks(sub_groups, 3, environment=EVERYWHERE)


def split(rank, size):
    options = hccl_like.Options(algorithms="all_reduce:my_ring")
    group = dist.split_group(split_ranks=[[0, 1]], pg_options=options)
    for part in (group, dist.split_group(group, [[0, 1]])):
        tensor = torch.full((100,), rank + 1.0, device="sim")
        dist.all_reduce(tensor, group=part)
        assert tensor.unique().tolist() == [3.0]
    dist.barrier()  # torch's split_group connects to rank 0's store anew


def test_a_split_group_has_it(sim):
    run_ranks(split, 2, device_id=torch.device("sim", 0))


# ------------------------------------------------------------------------------------------------------------ what is refused


def made_wrong(rank, size, case):
    algorithm = schedule_of(case, rank)
    if algorithm is not None:
        hccl_like.schedule.register(algorithm)
    with pytest.raises((ValueError, RuntimeError)) as caught:
        dist.new_group(pg_options=hccl_like.Options(algorithms="all_reduce:disputed"))
    dist.all_reduce(torch.ones(1))  # the group that made it is well
    return str(caught.value)


def schedule_of(case, rank):
    def renamed(name, change=lambda made: made):
        return hccl_like.schedule.Algorithm("all_reduce", "disputed", lambda topology: change(name._plan(topology)))

    def without_a_send(made):
        made[0][1]["rounds"][1] = made[0][1]["rounds"][1][1:]
        return made

    if case == "differs":
        return renamed(own.my_gathered if rank == 2 else own.my_ring)
    if case == "unknown":
        return None if rank == 1 else renamed(own.my_ring)
    if case == "wrong on one":
        return renamed(own.my_ring, without_a_send if rank == 1 else lambda made: made)
    return renamed(own.my_ring, without_a_send)


def test_ranks_that_do_not_agree_are_named_on_all():
    for said in run_ranks(made_wrong, 3, "differs"):
        assert "ranks 0 and 2 do not have the same algorithm all_reduce:disputed: their schedules differ" in said
    for said in run_ranks(made_wrong, 3, "unknown"):
        assert "ranks 0 and 1 do not have the same algorithm all_reduce:disputed: rank 0 made a schedule, and rank 1 knows none" in said
    good, wrong, other = run_ranks(made_wrong, 3, "wrong on one")
    assert "rank 0 made a schedule, and rank 1 cannot use it" in good and good.partition("disputed")[2] == other.partition("disputed")[2]
    assert "the all_reduce algorithm disputed is wrong: rank 2, round 1: recv_reduce in[0]+<-1 to out[0], but rank 1 has no step" in wrong


def test_a_wrong_algorithm_is_refused_when_the_group_is_made():
    for said in run_ranks(made_wrong, 3, "wrong on all"):
        assert "the all_reduce algorithm disputed is wrong: rank 2, round 1: recv_reduce in[0]+<-1 to out[0], but rank 1 has no step" in said


def ordered(rank, size):
    options = hccl_like.Options(algorithms="all_reduce:my_ring", deterministic=True)
    with pytest.raises(ValueError, match='"my_ring" sums in another order than the others, and deterministic results were asked'):
        dist.all_reduce(torch.ones(5), group=dist.new_group(pg_options=options))


def test_determinism_refuses_another_order():
    run_ranks(ordered, 2)


PACKAGE = """
from hccl_like.schedule import Schedule, algorithm, in_, out, recv, reduce, send

@algorithm("all_reduce")
def packaged(rank, size):
    if size != 2:
        raise NotImplementedError("for two ranks only")
    made = Schedule(1)
    other = made.scratch(in_[0])
    made.round(send(1 - rank, in_[0]), recv(1 - rank, other))
    made.round(reduce([in_[0], other], out[0]))
    return made
"""


def from_the_package(rank, size, folder, well):
    sys.path.insert(0, folder)
    options = hccl_like.Options(algorithms="all_reduce:packaged")
    if not well:
        with pytest.raises(ValueError, match="the all_reduce algorithm packaged cannot be used: packaged raised NotImplementedError for rank 0, "
                           "size 3: for two ranks only"):  # fmt: skip
            dist.new_group(pg_options=options)
        return
    tensor = torch.full((9,), rank + 1.0)
    dist.all_reduce(tensor, group=dist.new_group(pg_options=options))
    assert tensor.tolist() == [3.0] * 9


def test_an_entry_point_registers_it(tmp_path):
    (tmp_path / "packaged_ring.py").write_text(PACKAGE)
    metadata = tmp_path / "packaged_ring-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged_ring\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[hccl_like.algorithms]\nall_reduce.packaged = packaged_ring:packaged\n")
    run_ranks(from_the_package, 2, os.fspath(tmp_path), True)
    run_ranks(from_the_package, 3, os.fspath(tmp_path), False)

"""What may be said about one group, what it tells, and the ways in which groups come and go."""

import copy
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from ranks import make_store, run_ranks


def sum_over(group, ranks, rank, device):
    tensor = values.plain(rank, 11, torch.float32).to(device)
    dist.all_reduce(tensor, group=group)
    assert values.equal(tensor, values.total([values.plain(r, 11, torch.float32) for r in ranks]))


def backend_of(group, device="cpu"):
    return (group or dist.group.WORLD)._get_backend(torch.device(device))


# --------------------------------------------------------------------------------------------------------- options


def own_algorithm(rank, size):
    """Whose calls use which algorithm is seen from the schedules' different needs: all ranks must agree."""
    import hccl_like

    options = hccl_like.Options(algorithms="all_reduce:ring;broadcast:chain")
    ring = dist.new_group(pg_options=options)
    for device in ("cpu", "sim"):
        sum_over(ring, range(size), rank, device)
    assert backend_of(ring).options.algorithms == "all_reduce:ring;broadcast:chain"
    assert backend_of(None).options.algorithms == ""
    assert options.group_name == "", "the caller's options serve several groups and are not written to"

    agrees = hccl_like.Options(algorithms="all_reduce:ring" if rank == 0 else "all_reduce:direct")
    with pytest.raises(RuntimeError, match="Every rank must make the same calls"):
        dist.all_reduce(torch.ones(4), group=dist.new_group(pg_options=agrees))

    spelt = hccl_like.Options(algorithms="all_reduce:ring" if rank == 0 else "allreduce:ring")
    sum_over(dist.new_group(pg_options=spelt), range(size), rank, "cpu")

    wrong = dist.new_group(pg_options=hccl_like.Options(algorithms="all_reduce:star"))
    with pytest.raises(ValueError, match="star.*ring"):
        dist.all_reduce(torch.ones(4), group=wrong)
    with pytest.raises(ValueError, match="write collective:algorithm"):
        dist.new_group(pg_options=hccl_like.Options(algorithms="ring"))
    dist.barrier()  # rank 0 holds the store that the others may still be reading


def test_a_group_has_algorithms_of_its_own(sim):
    run_ranks(own_algorithm, 3)


def test_the_algorithms_of_a_group_are_documented_as_torch_spells_calls():
    import hccl_like

    assert "'all_reduce:ring;broadcast:chain'" in hccl_like.Options.algorithms.__doc__


def split_keeps_them(rank, size):
    import hccl_like

    group = dist.split_group(split_ranks=[[0, 1]], pg_options=hccl_like.Options(algorithms="all_reduce:ring"))
    assert backend_of(group).options.algorithms == "all_reduce:ring"
    assert backend_of(dist.split_group(group, [[0, 1]])).options.algorithms == "all_reduce:ring"
    dist.barrier()  # torch's split_group connects to rank 0's store anew


def test_a_split_inherits_options(sim):
    run_ranks(split_keeps_them, 2, device_id=torch.device("sim", 0))


def test_options_are_values():
    import hccl_like

    options = hccl_like.Options(timedelta(seconds=3), algorithms="all_reduce:ring")
    options.use_pg_for_symm_mem_rendezvous = True
    for copied in (copy.copy(options), copy.deepcopy(options)):
        assert copied.timeout == timedelta(seconds=3)
        assert copied.algorithms == "all_reduce:ring" and copied.use_pg_for_symm_mem_rendezvous
        copied.algorithms = ""
    assert options.algorithms == "all_reduce:ring" and "all_reduce:ring" in repr(options)


def foreign_options(rank, size):
    with pytest.raises(TypeError, match=r"takes hccl_like.Options\(\)"):
        dist.new_group(pg_options=dist.ProcessGroupGloo._Options())
    dist.barrier()


def test_options_of_another_backend_are_refused_for_a_new_group():
    run_ranks(foreign_options, 2)


# ---------------------------------------------------------------------------------------------------------- memory


def memory(rank, size, device):
    backend = backend_of(None, device)
    where = torch.device(device, 0)
    assert backend.supports_tensor_alloc(where)
    tensor = backend.allocate_tensor(7, dtype=torch.bfloat16, device=where)
    assert tensor.shape == (7,) and tensor.dtype == torch.bfloat16 and tensor.device.type == device
    dist.all_reduce(tensor.fill_(1))
    assert tensor.cpu().eq(size).all()
    with pytest.raises(TypeError, match="use torch.empty"):
        backend.mem_allocator
    other_end = None
    if rank == 0:  # waits for rank 1, with a temporary for the strided tensor
        strided = torch.ones(6, 4, device=device).t()
        other_end = dist.irecv(strided, 1)
        assert backend.memory_stats()["running_calls"] == 1
        if device == "cpu":
            assert backend.memory_stats()["temporary_bytes"] == 6 * 4 * 4
    dist.barrier()
    if rank == 1:
        dist.send(torch.full((4, 6), 3.0, device=device), 0)
    backend.suspend()
    if rank == 0:
        assert strided.cpu().eq(3).all(), "suspend() waits for what runs"
        assert backend.memory_stats() == {"running_calls": 0, "temporary_bytes": 0}
        other_end.wait()
    backend.resume()
    sum_over(None, range(size), rank, device)


def test_a_group_tells_what_it_holds(device):
    run_ranks(memory, 2, device)


# ---------------------------------------------------------------------------------------------------------- groups


def two_halves_merge(rank, size):
    """Two groups that share no rank become one; ranks of the first come first."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    half = halves[rank // 2]
    store = dist.PrefixStore("both", dist.group.WORLD.get_group_store())
    merged = half.merge_remote_group(store, size, timedelta(seconds=20), "both")
    tensor = torch.full((5,), 2.0**rank)
    merged.allreduce([tensor]).wait()
    assert values.equal(tensor, torch.full((5,), 15.0))
    ranks = [torch.zeros(1) for _ in range(size)]
    merged.allgather([ranks], [torch.tensor([float(merged.rank())])]).wait()
    assert [int(r) for r in ranks] == list(range(size))


def test_groups_without_a_common_rank_merge():
    run_ranks(two_halves_merge, 4)


def some_ranks_alone(rank, size, device):
    """With local synchronisation only the members call."""
    mine = [0, 2] if rank % 2 == 0 else [1, 3]
    sum_over(dist.new_group(mine, use_local_synchronization=True), mine, rank, device)
    if rank == 3:
        sum_over(dist.new_group([3], use_local_synchronization=True), [3], rank, device)
    sum_over(None, range(size), rank, device)
    group, groups = dist.new_subgroups(group_size=2)
    assert len(groups) == 2
    sum_over(group, [rank // 2 * 2, rank // 2 * 2 + 1], rank, device)
    group, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    sum_over(group, [0, 3] if rank in (0, 3) else [1, 2], rank, device)
    dist.barrier()  # rank 0 serves the store through which the others still meet


@pytest.mark.parametrize("bound", [False, True], ids=["without device_id", "with device_id"])
def test_subgroups_are_made_by_their_members(device, bound):
    if bound and device == "cpu":
        pytest.skip("a device_id is an accelerator's")
    run_ranks(some_ranks_alone, 4, device, **({"device_id": torch.device(device, 0)} if bound else {}))


def everything_aborted(rank, size, listener, device):
    """After an abort the process makes its groups again, through the same store."""
    store = make_store(rank, listener)
    for attempt in range(3):
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20))
        sum_over(None, range(size), rank, device)
        if rank == 0:
            with pytest.raises(RuntimeError, match="abort|gave up"):
                for _ in range(1000):
                    dist.barrier()
        else:
            work = dist.irecv(torch.zeros(3, device=device), 0)
            backend = backend_of(None, device)
            aborter = threading.Thread(target=backend.abort)
            aborter.start()
            aborter.join()
            with pytest.raises(RuntimeError, match="abort|gave up"):
                work.wait(timedelta(seconds=1))
        assert "REMOTE_ERROR" in str(backend_of(None, device).get_error())
        dist.distributed_c10d._abort_process_group()
        assert not dist.is_initialized(), attempt


def test_groups_are_made_again_after_an_abort(device):
    run_ranks(everything_aborted, 2, device, group=False)


def time_outs(rank, size, device):
    """By call, by group, and by the default; what is said has the words that tools look for."""
    group = dist.new_group(timeout=timedelta(seconds=25))
    if rank == 0:
        with pytest.raises(RuntimeError, match=" timeout: "):
            work = group.recv_anysource([number := torch.zeros(1)], 9)
            work.wait(timedelta(milliseconds=100))
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(1), 0, group=group, tag=9)
    elif work.wait():  # it has gone on
        assert number == 1
    for set_timeout in ("set_timeout", "_set_default_timeout"):
        group = dist.new_group(timeout=timedelta(seconds=25))
        target = group if set_timeout == "set_timeout" else backend_of(group)
        getattr(target, set_timeout)(timedelta(milliseconds=300))
        if rank == 0:
            with pytest.raises(RuntimeError, match="caught collective operation timeout: .*after 3.. ms"):
                dist.all_reduce(torch.ones(2, device=device), group=group)
                torch.sim.synchronize()
                dist.all_reduce(torch.ones(2, device=device), group=group)
            assert "TIMEOUT" in str(backend_of(group, device).get_error())
        dist.barrier()
    options = dist.AllreduceOptions()
    options.timeout = timedelta(milliseconds=300)
    group = dist.new_group(timeout=timedelta(seconds=25))
    if rank == 0:
        with pytest.raises(RuntimeError, match=" timeout: "):
            group.allreduce([torch.ones(2)], options).wait()
    dist.barrier()


def test_time_outs_of_calls_and_groups(device, sim):
    run_ranks(time_outs, 2, device)


def last_one(rank, size):
    group = dist.new_group(timeout=timedelta(seconds=25))
    work = None if rank else group.recv_anysource([torch.zeros(1)], 9)
    dist.barrier()
    if rank == 0:
        begin = time.monotonic()
        with pytest.raises(RuntimeError, match="lost rank [12] .*from any rank.*it left the group"):
            work.wait()
        assert time.monotonic() - begin < 10


def test_a_receive_from_any_rank_ends_when_nobody_is_left(transport):
    run_ranks(last_one, 3, environment=transport)

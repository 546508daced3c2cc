"""Groups made from groups: new_group, split_group, device meshes, merging, and all that torch asks of them."""

import copy
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


def new_groups(rank, size, device):
    evens, odds = list(range(0, size, 2)), list(range(1, size, 2))
    groups = {tuple(ranks): dist.new_group(ranks) for ranks in (evens, odds)}
    mine = evens if rank % 2 == 0 else odds
    sum_over(groups[tuple(mine)], mine, rank, device)
    reversed_ranks = dist.new_group(list(range(size))[::-1])
    sum_over(reversed_ranks, list(range(size)), rank, device)
    dist.destroy_process_group(groups[tuple(mine)])
    sum_over(None, list(range(size)), rank, device)


@pytest.mark.parametrize("size", [2, 5])
def test_new_groups_have_their_own_ranks(device, transport, size):
    run_ranks(new_groups, size, device, environment=transport)


def many_groups(rank, size, device):
    for _ in range(30):
        sum_over(dist.new_group(list(range(size))), range(size), rank, device)


def test_dozens_of_groups_live_side_by_side(device):
    run_ranks(many_groups, 2, device)


def splits(rank, size):
    half = [[0, 1], [2, 3]]
    group = dist.split_group(split_ranks=half)
    mine = half[rank // 2]
    assert dist.get_process_group_ranks(group) == mine
    for device in ("cpu", "sim"):
        sum_over(group, mine, rank, device)
    # Ranks that are in no part take part in the call, and the parts' names need not agree between ranks.
    names = dist.distributed_c10d._world.pg_names
    if rank == 2:
        names["a group that only this rank has"] = "its name"
    part = dist.split_group(split_ranks=[[1, 2]])
    names.pop("a group that only this rank has", None)
    if rank in (1, 2):
        sum_over(part, [1, 2], rank, "sim")
    sum_over(dist.split_group(split_ranks=[[0, 1, 2, 3]]), range(4), rank, "sim")
    backend = dist.group.WORLD._get_backend(torch.device("sim"))
    assert backend.comm_split_count() == 3
    assert group._get_backend(torch.device("cpu")) is not None


def test_a_group_splits_over_its_own_links(sim):
    run_ranks(splits, 4, device_id=torch.device("sim", 0))


def meshes(rank, size, bound):
    mesh = dist.init_device_mesh("sim", (2, 2), mesh_dim_names=("replica", "shard"))
    row, column = rank // 2, rank % 2
    sum_over(mesh.get_group("shard"), [2 * row, 2 * row + 1], rank, "sim")
    sum_over(mesh.get_group("replica"), [column, column + 2], rank, "sim")
    flat = mesh["replica", "shard"]._flatten("all")
    sum_over(flat.get_group(), range(4), rank, "sim")


@pytest.mark.parametrize("bound", [True, False], ids=["with device_id", "without"])
def test_two_dimensional_meshes_work(sim, bound):
    run_ranks(meshes, 4, bound, **({"device_id": torch.device("sim", 0)} if bound else {}))


def duck_typed_members(rank, size):
    import hccl_like

    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.name() == "hccl-like"
    assert isinstance(backend, hccl_like.ProcessGroupHcclLike)
    assert backend.supports_splitting and backend.supports_coalescing
    options = copy.deepcopy(backend.options)
    options.group_desc = "changed"
    assert backend.options.group_desc != "changed"
    assert backend.options._timeout == timedelta(seconds=30)
    backend._set_default_timeout(timedelta(seconds=20))
    assert backend.options.timeout == timedelta(seconds=20)
    dist.group.WORLD.set_timeout(timedelta(seconds=25))
    backend.perform_nocolor_split(torch.device("cpu"))
    backend._set_sequence_number_for_group()
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 1
    assert "SUCCESS" in str(backend.get_error())
    assert "rank" in repr(backend) and "timeout" in repr(options)


def test_the_backend_has_what_torch_looks_for():
    run_ranks(duck_typed_members, 2)


def options_of_a_group(rank, size):
    import hccl_like

    group = dist.new_group([0, 1], pg_options=hccl_like.Options(), timeout=timedelta(seconds=7))
    backend = group._get_backend(torch.device("cpu"))
    assert backend.options.timeout == timedelta(seconds=7)
    sum_over(group, [0, 1], rank, "cpu")


def test_a_group_takes_options():
    run_ranks(options_of_a_group, 2)


def merged(rank, size):
    store = dist.PrefixStore("merging", dist.group.WORLD.get_group_store())
    group = dist.group.WORLD.merge_remote_group(store, size, timedelta(seconds=20), "merged")
    tensor = torch.full((3,), float(group.rank() + 1))
    group.allreduce([tensor]).wait()
    assert values.equal(tensor, torch.full((3,), size * (size + 1) / 2))


def test_a_group_merges_through_a_store():
    run_ranks(merged, 2)


def in_detail(rank, size, device):
    tensor = torch.ones(5, device=device)
    dist.all_reduce(tensor)
    assert values.equal(tensor, torch.full((5,), float(size)))


def test_works_under_the_debug_wrapper(device):
    run_ranks(in_detail, 2, device, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def again(rank, size, listener):
    """Groups are made, used and destroyed over and over, through one store."""
    store = make_store(rank, listener)
    for _ in range(5):
        dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size)
        sum_over(None, range(size), rank, "cpu")
        dist.destroy_process_group()


def test_initialises_again_after_destroy():
    run_ranks(again, 3, group=False)


def functional(rank, size, device):
    import torch.distributed._functional_collectives as functional_collectives

    group = dist.group.WORLD
    tensor = torch.full((4,), float(rank + 1), device=device)
    total = functional_collectives.all_reduce(tensor, "sum", group)
    assert values.equal(functional_collectives.wait_tensor(total), torch.full((4,), size * (size + 1) / 2))
    gathered = functional_collectives.wait_tensor(functional_collectives.all_gather_tensor(tensor, 0, group))
    assert values.equal(gathered, torch.cat([torch.full((4,), float(r + 1)) for r in range(size)]))
    part = functional_collectives.reduce_scatter_tensor(gathered, "sum", 0, group)
    assert values.equal(functional_collectives.wait_tensor(part), torch.full((4,), float((rank + 1) * size)))


def test_functional_collectives_work(device):
    run_ranks(functional, 2, device)


def host_and_device_in_either_order(rank, size):
    host, device = torch.full((5,), float(rank)), torch.full((7,), float(rank + 1), device="sim")
    order = [host, device] if rank % 2 else [device, host]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in order]:
        work.wait()
    dist.barrier()
    return host.tolist(), device.cpu().tolist()


@pytest.mark.parametrize("size", [2, 3])
def test_host_and_device_calls_are_numbered_apart(size):
    if not torch.accelerator.is_available():
        pytest.skip("needs torch_sim")
    pairs = size * (size - 1) / 2
    assert run_ranks(host_and_device_in_either_order, size) == [([pairs] * 5, [pairs + size] * 7)] * size

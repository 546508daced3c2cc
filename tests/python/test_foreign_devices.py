"""Devices without a plugin that lack what the simulator has, each by a setting of the simulator (TORCH_SIM_FLAWS)."""

import os
import sys

import pytest
import torch
import torch.distributed as dist
import torch_sim

import values
from hccl_like import _local_ranks
from plugins import run
from test_collectives import CASES
from test_staged_calls import COUNT, IN_SLICES, STAGED, mine, operations, staged


def flawed(function, flaws, *arguments, size=2, **environment):
    return staged(function, size, *arguments, environment={"TORCH_SIM_FLAWS": flaws, **environment})


# ----------------------------------------------------------------------------------------------- tensors without an index


def lists_of_both(rank, size):
    torch.sim.set_device(1)
    bare, indexed = torch.empty(3, device="sim"), torch.empty(3, device="sim:1")
    assert bare.device.index is None and indexed.device.index == 1
    for outputs in ([bare, indexed], [indexed, bare]):
        given = torch.full((3,), rank + 1.0).to("sim:1")
        dist.all_gather(outputs, given)
        assert [output.cpu().tolist() for output in outputs] == [[1.0] * 3, [2.0] * 3]
        dist.all_gather(outputs, torch.full((3,), rank + 3.0).to("sim"))
        assert [output.cpu().tolist() for output in outputs] == [[3.0] * 3, [4.0] * 3]
    other = torch.empty(3, device="sim:0")
    try:
        dist.all_gather([bare, other], indexed)
    except ValueError as error:
        return str(error)


def test_no_index_means_the_current_device(sim):
    for told in flawed(lists_of_both, "no-indices"):
        assert "all tensors of a call must be on one device, got sim:1 and sim:0; move them with tensor.to()" in told, told


# ------------------------------------------------------------------------------------------------------------------ hooks


def test_ranks_meet_on_a_device_without_hooks(sim, monkeypatch):
    # Before torch is imported, so in interpreters of their own.
    monkeypatch.setenv("TORCH_SIM_FLAWS", "no-hooks")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)]))
    failed = _local_ranks.run("without_hooks", [], 2, 60, output := _local_ranks.Output())
    assert failed is None, f"rank {failed.rank} {failed.why}: {failed.told}"
    assert sorted(output.text.splitlines()) == [f"met {rank} {[3.0] * 5}" for rank in range(2)]


# ---------------------------------------------------------------------------------------------------- copies of whole blocks


def copies_of_parts(call):
    """How many copies of parts of storages a call makes on this rank."""
    before = torch_sim._C.copies_of_parts()
    call()
    torch.sim.synchronize()
    return torch_sim._C.copies_of_parts() - before


# 13 slices of an all_reduce of COUNT, more for others: so many that no noise makes parts look cheap.
IN_MANY = {"HCCL_LIKE_SLICE_BYTES": str(16 << 10)}


def counted(rank, size):
    """(operations, copies of parts) of an all_reduce, of a reduce_scatter and an all_gather of a part, and of two calls
    that each pair of ranks cuts for itself."""
    large, whole = mine(rank).to("sim"), mine(rank, size * COUNT).to("sim")
    dist.all_reduce(torch.zeros(COUNT).to("sim"))  # measures, and makes staging memory
    splits = [COUNT] * size
    found = []
    for call in (
        lambda: dist.all_reduce(large),
        lambda: dist.reduce_scatter_tensor(large, whole),
        lambda: dist.all_gather_into_tensor(whole, large),
        lambda: dist.all_to_all_single(whole, whole.clone(), splits, splits),
        lambda: dist.all_gather(list(whole.chunk(size)), large),
    ):
        counts = []
        issued = operations(lambda: counts.append(copies_of_parts(call)))
        found.append((issued, counts[0]))
    return found


def test_what_is_dear_to_copy_in_parts_is_copied_at_once_and_cut_alike(sim):
    # The strict simulator protects whole blocks in each copy, so that parts are a little dear there.
    plain = staged(counted, 2, environment=IN_MANY | {"TORCH_SIM_STRICT": "0"})
    flawed_ranks = flawed(counted, "block-copies", **IN_MANY)
    assert plain[0] == plain[1] and flawed_ranks[0] == flawed_ranks[1]
    assert [issued for issued, _ in flawed_ranks[0]] == [issued for issued, _ in plain[0]]
    assert plain[0][0] == (13, 26) and all(copies > issued for issued, copies in plain[0]), plain
    assert [copies for _, copies in flawed_ranks[0]] == [0] * 5


def everything(rank, size):
    for case in CASES:
        case(rank, size, "sim")
    for case in STAGED:
        case(rank, size)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_on_devices_that_differ_go_together(sim, size):
    """Which way a rank copies is its own decision."""
    staged(everything, size, environment=lambda rank: IN_SLICES | {"TORCH_SIM_FLAWS": "block-copies" if rank == 1 else ""})


def counted_by_plugin(rank, size):
    for case in STAGED:
        case(rank, size)
    tensor = mine(rank).to("sim")
    assert copies_of_parts(lambda: dist.all_reduce(tensor)) == 0
    assert values.equal(tensor, values.total([mine(r) for r in range(size)]))


@pytest.mark.parametrize("without", ["map", "map, host functions, words", "map, host functions, words, own streams, events"])
def test_a_plugin_copies_at_once_too(without, sim, stripped):
    run(counted_by_plugin, 2, stripped, without, environment=IN_MANY | {"TORCH_SIM_FLAWS": "block-copies"})


def one_fails(rank, size):
    """A call that fails halfway leaves the output alone."""
    tensor = mine(rank, COUNT + rank).to("sim")
    before = tensor.cpu()
    with pytest.raises(dist.DistBackendError, match="rank 1 passed 99542 elements"):
        dist.all_reduce(tensor)
    assert torch.equal(tensor.cpu(), before)
    dist.destroy_process_group()


def test_a_call_that_fails_is_not_copied_back(sim):
    flawed(one_fails, "block-copies", **IN_MANY)

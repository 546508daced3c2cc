"""torch.distributed._symmetric_memory on host tensors and on the accelerator: the others' memory and how ranks meet."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import values
from ranks import make_store, run_ranks
from symmetric import shared, world


def buffers_of_all_ranks(rank, size, device):
    tensor, handle = shared((7, 3), torch.int32, device=device, fill=100 + rank)
    assert (handle.rank, handle.world_size) == (rank, size)
    assert handle.buffer_size == 84 and len(handle.buffer_ptrs) == size and len(handle.signal_pad_ptrs) == size
    assert str(handle.device) == str(tensor.device)
    assert handle.multicast_ptr == 0
    assert symm_mem.is_symm_mem_tensor(tensor) and not symm_mem.is_symm_mem_tensor(torch.ones(3, device=device))
    assert symm_mem.rendezvous(torch.ones(3, device=device), world()) is None
    assert symm_mem.rendezvous(tensor, world()).buffer_ptrs == handle.buffer_ptrs
    handle.barrier()
    for peer in range(size):
        seen = handle.get_buffer(peer, (7, 3), torch.int32)
        assert seen.device == tensor.device
        assert values.equal(seen, torch.full((7, 3), 100 + peer, dtype=torch.int32))
        part = handle.get_buffer(peer, (2,), torch.int32, 19)
        assert (part + 1).tolist() == [101 + peer] * 2
    handle.barrier()
    # Written by one rank, read by another.
    handle.get_buffer((rank + 1) % size, (1,), torch.int32, rank).fill_(-rank)
    handle.barrier()
    writer = (rank - 1) % size
    assert tensor.flatten()[writer].item() == -writer
    with pytest.raises(RuntimeError, match="exceeds the allocated size"):
        handle.get_buffer(0, (22,), torch.int32)
    pad = handle.get_signal_pad((rank + 1) % size, (4,), torch.int64)
    assert pad.tolist() == [0] * 4
    handle.barrier()
    pad[rank % 4] = 7 + rank
    handle.barrier()
    assert handle.get_signal_pad(rank, (4,), torch.int64)[writer % 4].item() == 7 + writer
    assert tensor.flatten()[size].item() == 100 + rank, "the pad is not part of the buffer"


def odd_sizes(rank, size, device):
    for elements in (0, 1, 63, 64, 65, 300_001):
        tensor, handle = shared((elements,), torch.uint8, device=device, fill=rank + 1)
        handle.barrier()
        for peer in range(size):
            assert handle.get_buffer(peer, (elements,), torch.uint8).sum(dtype=torch.int64).item() == elements * (peer + 1)
        handle.barrier()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_rank_sees_and_writes_the_others_memory(device, size):
    run_ranks(buffers_of_all_ranks, size, device)


def test_memory_of_any_size_is_shared(device):
    run_ranks(odd_sizes, 2, device)



def two_groups(rank, size, device):
    """The same tensor in two groups, whose barriers do not mix."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = pairs[rank // 2]
    tensor, everybody = shared((5,), device=device, fill=rank)
    partner = symm_mem.rendezvous(tensor, pair.group_name)
    assert (partner.rank, partner.world_size) == (rank % 2, 2)
    assert everybody.world_size == 4
    partner.barrier()
    everybody.barrier()
    assert partner.get_buffer(1 - rank % 2, (5,), torch.float32)[0].item() == rank ^ 1
    assert everybody.get_buffer((rank + 2) % 4, (5,), torch.float32)[0].item() == (rank + 2) % 4
    for _ in range(5 if rank < 2 else 3):
        partner.barrier()
    everybody.barrier()
    result = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", pair.group_name)
    assert result.tolist() == [1.0 if rank < 2 else 5.0] * 5
    result = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())
    assert result.tolist() == [6.0] * 5


def sizes_differ(rank, size, device):
    tensor = symm_mem.empty(10 + rank // 2, device=device)
    with pytest.raises(RuntimeError, match=r"rank \d has 4[04] bytes and this rank 4[04]|all ranks must allocate"):
        symm_mem.rendezvous(tensor, world())
    shared((3,), device=device)[1].barrier()


def one_stays_away(rank, size, device):
    tensor = symm_mem.empty(10, device=device)
    store = dist.distributed_c10d._get_default_store()
    if rank < 2:
        with pytest.raises(RuntimeError, match="ranks 2 and 3 of group .* did not come to the rendezvous"):
            symm_mem.rendezvous(tensor, world())
        store.set(f"rank {rank} is done", "")
        if rank == 0:
            store.wait(["rank 1 is done"])  # rank 0 serves the store


def persistent(rank, size, device):
    """torch keeps an allocation with an id; the second tensor has the first one's memory and handle."""
    empty = torch._C._distributed_c10d._SymmetricMemory.empty_strided_p2p
    place = torch.device(device, 0) if device != "cpu" else torch.device("cpu")
    first = empty((6,), (1,), torch.float32, place, world(), 42)
    handle = symm_mem.rendezvous(first, world())
    at = first.data_ptr()
    first.fill_(rank)
    del first
    again = empty((6,), (1,), torch.float32, place, world(), 42)
    assert again.data_ptr() == at
    handle.barrier()
    assert handle.get_buffer((rank + 1) % size, (6,), torch.float32).tolist() == [float((rank + 1) % size)] * 6
    handle.barrier()


def test_one_tensor_in_two_groups(device):
    run_ranks(two_groups, 4, device)


def test_ranks_that_do_not_agree_are_told(device):
    run_ranks(sizes_differ, 4, device)


def test_who_does_not_come_is_named(device):
    run_ranks(one_stays_away, 4, device, group_timeout=3)


def test_persistent_allocations_are_found_again(device):
    run_ranks(persistent, 2, device)


def again_and_again(rank, size, listener, backend, device):
    """In a group of any backend, and in the group that follows a destroyed one and has its name."""
    import hccl_like

    store = make_store(rank, listener)
    for slice in range(2):
        dist.init_process_group(backend, store=dist.PrefixStore(str(slice), store), rank=rank, world_size=size)
        hccl_like.enable_symmetric_memory()
        tensor, handle = shared((9,), device=device, fill=10 * slice + rank)
        handle.barrier()
        assert handle.get_buffer((rank + 1) % size, (9,), torch.float32)[8].item() == 10 * slice + (rank + 1) % size
        assert torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())[0].item() == 20 * slice + 1
        del tensor, handle
        dist.barrier()
        dist.destroy_process_group()
        store.set(f"{slice}/{rank}", "")
        if rank == 0 or slice == 0:  # rank 0 serves the store, so it is the last to go
            store.wait([f"{slice}/{peer}" for peer in range(size)])


def of_a_mesh(rank, size, device):
    """Groups that torch made by splitting, whose ranks are not those of the world."""
    mesh = dist.init_device_mesh(device, (2, 2), mesh_dim_names=("a", "b"))
    for dimension in ("a", "b"):
        group = mesh.get_group(dimension)
        tensor, handle = shared((3,), device=device, fill=rank, group=group.group_name)
        assert (handle.rank, handle.world_size) == (group.rank(), 2)
        total = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", group.group_name)
        assert total.tolist() == [float(sum(dist.get_process_group_ranks(group)))] * 3
    dist.barrier()


@pytest.mark.parametrize("backend", ["gloo", "hccl-like"])
def test_groups_of_any_backend_and_later_ones(device, backend):
    run_ranks(again_and_again, 2, backend, device, group=False)


def test_groups_of_a_mesh(device):
    run_ranks(of_a_mesh, 4, device)

"""Symmetric memory that is freed early, late, or never."""

import os
import re

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import values
from ranks import run_ranks
from symmetric import delay, settle, shared, world


def early_free(rank, size, device):
    """The tensor and the handle may go at once, and other tensors may come in their place: nobody reads wrong data."""
    for slice in range(6):
        tensor, handle = shared((20_000,), device=device, fill=0)
        delay(device) if slice < 2 and rank == 0 else None
        tensor.fill_(slice + rank)
        result = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())
        handle.barrier()
        peer = handle.get_buffer((rank + 1) % size, (20_000,), torch.float32).clone()
        del tensor, handle
        rubbish = [torch.full((20_000,), -1e9, device=device) for _ in range(4)]
        assert values.equal(result, torch.full((20_000,), float(size * slice + size * (size - 1) // 2)))
        if slice % 2 == 0:
            dist.barrier()  # on odd slices the owner may have freed the memory before the peer's copy
            assert values.equal(peer, torch.full((20_000,), float(slice + (rank + 1) % size)))
        del rubbish


def freed_by_its_owner(rank, size):
    """A peer holds on to memory that its owner has freed: it is not handed out again before the peer lets go."""
    tensor, handle = shared((50_000,), device="sim", fill=rank + 1)
    handle.barrier()
    torch.sim.synchronize()
    place = tensor.data_ptr()
    dist.barrier()
    if rank == 0:
        del tensor, handle
        others = [torch.full((50_000,), -1.0, device="sim") for _ in range(20)]
        assert place not in [other.data_ptr() for other in others], "a peer still maps that memory"
        dist.barrier()
        dist.barrier()
        del others
        symm_mem.empty(1, device="sim")  # whoever comes by next frees it
        others = [torch.empty(50_000, device="sim") for _ in range(40)]
        assert place in [other.data_ptr() for other in others], "it was never given back"
    else:
        dist.barrier()
        assert values.equal(handle.get_buffer(0, (50_000,), torch.float32), torch.full((50_000,), 1.0))
        del tensor, handle
        dist.barrier()


def mappings(word):
    with open("/proc/self/maps") as maps:
        return sum(word in line for line in maps)


def files(word):
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += word in os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass
    return found


def leaves_nothing(rank, size, device):
    def count():
        symm_mem.empty(1, device=device)  # memory that others used is given back when somebody comes by
        settle(device)
        return mappings("memfd:hccl-like-shared"), files("hccl-like-shared"), mappings("memfd:torch_sim"), files("torch_sim")

    inherited = mappings("memfd:hccl-like-shared"), files("hccl-like-shared")  # from the process that forked the ranks
    warm = shared((100,), device=device)
    warm[1].barrier()
    settle(device)
    dist.barrier()
    del warm
    dist.barrier()
    before = count()
    assert before[:2] == inherited
    kept = [shared((1000 + i,), device=device) for i in range(3)]
    for tensor, handle in kept:
        torch.ops.symm_mem.one_shot_all_reduce(tensor.fill_(1), "sum", world())
    assert count() > before
    dist.barrier()
    handles = [handle for _, handle in kept]
    del kept, tensor, handle
    assert count() > before, "the handle alone keeps the mapping"
    assert handles[0].get_buffer((rank + 1) % size, (1000,), torch.float32)[999].item() == 1
    dist.barrier()
    handles.clear()
    dist.barrier()
    assert count() == before


def forks(rank, size, device):
    tensor, handle = shared((10,), device=device, fill=rank)
    handle.barrier()
    settle(device)
    child = os.fork()
    if child == 0:
        try:
            handle.barrier()
        except RuntimeError as error:
            del tensor, handle
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    handle.barrier()
    assert handle.get_buffer((rank + 1) % size, (10,), torch.float32)[0].item() == (rank + 1) % size
    handle.barrier()


def test_memory_may_be_freed_while_work_is_queued(device):
    run_ranks(early_free, 2, device)


def test_memory_that_a_peer_uses_is_not_handed_out_again(sim):
    run_ranks(freed_by_its_owner, 2)


def test_nothing_is_left_when_the_last_user_goes(device):
    run_ranks(leaves_nothing, 3, device)


def test_a_forked_child_has_no_part_in_it(device):
    run_ranks(forks, 2, device)


def ends_holding_everything(rank, size, device):
    global held
    held = shared((100,), device=device, fill=1)
    torch.ops.symm_mem.one_shot_all_reduce(held[0], "sum", world())
    dist.barrier()


def test_a_rank_may_end_with_memory_still_shared(device):
    run_ranks(ends_holding_everything, 2, device)
    assert not [name for name in os.listdir("/dev/shm") if re.search("hccl-like|torch_sim", name)]


def test_a_process_may_load_the_extension_before_it_forks_its_ranks(sim):
    import hccl_like

    hccl_like.Options()
    run_ranks(leaves_nothing, 2, "sim")
    run_ranks(leaves_nothing, 2, "cpu")

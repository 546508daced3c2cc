"""torch.distributed._symmetric_memory on host tensors and on the accelerator: the others' memory, signals, operators."""

import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import values
from ranks import make_store, run_ranks

QUEUED_MS = 200
AT_ONCE = 0.1


def world():
    return dist.group.WORLD.group_name


def shared(sizes, dtype=torch.float32, *, device, fill=None, group=None):
    """A symmetric tensor and its handle."""
    tensor = symm_mem.empty(sizes, dtype=dtype, device=device)
    if fill is not None:
        tensor.copy_(fill) if isinstance(fill, torch.Tensor) else tensor.fill_(fill)
    return tensor, symm_mem.rendezvous(tensor, group or world())


def settle(device):
    if device != "cpu":
        torch.sim.synchronize()


def delay(device):
    """Work queued in front of what follows, where there is a queue."""
    if device != "cpu":
        torch.sim._sleep(QUEUED_MS)


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


# --- signals -----------------------------------------------------------------------------------------------------------


def hands_a_value_on(rank, size, device):
    """A token goes round: each rank adds to it when its turn comes, and no rank looks before that."""
    tensor, handle = shared((1,), torch.int64, device=device, fill=0)
    handle.barrier()
    for lap in range(3):
        if rank > 0 or lap > 0:
            handle.wait_signal((rank - 1) % size, channel=2)
            tensor.add_(1)
        following = handle.get_buffer((rank + 1) % size, (1,), torch.int64)
        following.copy_(tensor)
        handle.put_signal((rank + 1) % size, channel=2)
    if rank == 0:
        handle.wait_signal(size - 1, channel=2)
        assert tensor.item() == 3 * size - 1
    handle.barrier()


def in_stream_order(rank, size):
    """Issuing does not block; what is queued behind a wait sees what was queued in front of the signal."""
    tensor, handle = shared((1000,), device="sim", fill=0)
    copy = torch.zeros(1000, device="sim")
    source = handle.get_buffer((rank + 1) % size, (1000,), torch.float32)
    for lap in range(1, 4):
        torch.sim.synchronize()
        begin = time.monotonic()
        torch.sim._sleep(QUEUED_MS)
        tensor.fill_(lap * (rank + 1))
        handle.put_signal((rank - 1) % size, channel=1)
        handle.wait_signal((rank + 1) % size, channel=1)
        copy.copy_(source)
        handle.barrier(channel=3)
        assert time.monotonic() - begin < AT_ONCE, "issuing waited for the device"
        assert values.equal(copy, torch.full((1000,), float(lap * ((rank + 1) % size + 1))))


def on_two_streams(rank, size):
    """Channels keep the barriers of two streams apart, in whatever order they are issued."""
    tensor, handle = shared((2,), torch.int64, device="sim", fill=0)
    torch.sim.synchronize()
    streams = [torch.sim.Stream(), torch.sim.Stream()]
    seen = {}
    for channel in (0, 1) if rank % 2 else (1, 0):
        with torch.sim.stream(streams[channel]):
            torch.sim._sleep(50 * (rank + channel))
            tensor[channel : channel + 1].fill_(10 * channel + rank)
            handle.barrier(channel=channel)
            seen[channel] = torch.zeros(1, dtype=torch.int64, device="sim")
            seen[channel].copy_(handle.get_buffer((rank + 1) % size, (2,), torch.int64)[channel : channel + 1])
            handle.barrier(channel=channel)
    torch.sim.synchronize()
    for channel in (0, 1):
        assert seen[channel].item() == 10 * channel + (rank + 1) % size


@pytest.mark.parametrize("size", [2, 3])
def test_signals_order_what_ranks_do(device, size):
    run_ranks(hands_a_value_on, size, device)


@pytest.mark.parametrize("case", [in_stream_order, on_two_streams], ids=lambda case: case.__name__)
def test_signals_keep_the_order_of_streams(case, sim):
    run_ranks(case, 3)


def nobody_signals(rank, size, device):
    """The error names who gave up and whom it waited for; the others learn of it, and stay so."""
    tensor, handle = shared((4,), device=device, fill=0)
    other, other_handle = shared((4,), device=device, fill=rank)
    handle.barrier()
    if rank == 1:
        with pytest.raises(RuntimeError, match=r"failed on rank 1: wait_signal on channel 3: timed out waiting for rank 2"):
            handle.wait_signal(2, channel=3, timeout_ms=100)
            settle(device)
            handle.get_buffer(0, (4,), torch.float32)
        dist.barrier()
    else:
        dist.barrier()
        with pytest.raises(RuntimeError, match=r"failed on rank 1: wait_signal"):
            handle.barrier()
    with pytest.raises(RuntimeError, match="failed on rank 1"):
        torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())
    other_handle.barrier()  # another memory is as good as before
    assert other_handle.get_buffer(2, (4,), torch.float32).tolist() == [2.0] * 4
    other_handle.barrier()


def nobody_takes_the_signal(rank, size, device):
    _, handle = shared((4,), device=device)
    if rank == 0:
        handle.put_signal(1, channel=0)
        with pytest.raises(RuntimeError, match=r"put_signal on channel 0 .*timed out waiting for rank 1"):
            handle.put_signal(1, channel=0, timeout_ms=50)
            settle(device)
            handle.barrier()
    dist.barrier()


def barrier_without_two(rank, size, device):
    _, handle = shared((4,), device=device)
    if rank in (0, 3):
        with pytest.raises(RuntimeError, match=r"barrier on channel 1: timed out waiting for ranks 1 and 2"):
            handle.barrier(channel=1, timeout_ms=300)
            settle(device)
            handle.barrier(channel=1)
    dist.barrier()


def dies(rank, size, device):
    tensor, handle = shared((4,), device=device, fill=rank)
    handle.barrier()
    settle(device)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="process of rank 1 has ended"):
        handle.barrier()
        settle(device)
        handle.barrier()
    assert time.monotonic() - begin < 5, "a dead rank must be noticed before the time-out"


def wrong_arguments(rank, size, device):
    _, handle = shared((4,), device=device)
    with pytest.raises((ValueError, RuntimeError), match="channel 100000 is not one of 0 to"):
        handle.barrier(channel=100_000)
    with pytest.raises((ValueError, RuntimeError), match="rank 2 is not in group"):
        handle.put_signal(2)
    handle.barrier()


def test_a_signal_that_does_not_come_fails_all_ranks(device):
    run_ranks(nobody_signals, 3, device)


def test_a_signal_that_nobody_takes_blocks_the_next(device):
    run_ranks(nobody_takes_the_signal, 2, device)


def test_a_barrier_names_all_ranks_that_are_missing(device):
    run_ranks(barrier_without_two, 4, device)


def test_a_dead_rank_is_noticed(device):
    assert run_ranks(dies, 2, device) == [None, -signal.SIGKILL]


def test_wrong_ranks_and_channels_are_refused(device):
    run_ranks(wrong_arguments, 2, device)


# --- the rendezvous -----------------------------------------------------------------------------------------------------


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
    for lap in range(2):
        dist.init_process_group(backend, store=dist.PrefixStore(str(lap), store), rank=rank, world_size=size)
        hccl_like.enable_symmetric_memory()
        tensor, handle = shared((9,), device=device, fill=10 * lap + rank)
        handle.barrier()
        assert handle.get_buffer((rank + 1) % size, (9,), torch.float32)[8].item() == 10 * lap + (rank + 1) % size
        assert torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())[0].item() == 20 * lap + 1
        del tensor, handle
        dist.barrier()
        dist.destroy_process_group()
        store.set(f"{lap}/{rank}", "")
        store.wait([f"{lap}/{peer}" for peer in range(size)])


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


# --- operators ----------------------------------------------------------------------------------------------------------

COMPUTE = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "min": torch.minimum,
    "max": torch.maximum,
}


def operand(rank, elements, dtype):
    return ((torch.arange(elements) * 7 + 3 * rank) % 5 - 1).to(dtype)


def expected(op, size, elements, dtype):
    result = operand(0, elements, dtype)
    for rank in range(1, size):
        result = COMPUTE[op](result, operand(rank, elements, dtype))
    return result


def all_reduces(rank, size, device):
    ops = torch.ops.symm_mem
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        for op in COMPUTE:
            for elements in (1, size + 1, 1003):
                if dtype == torch.uint8 and op in ("min", "max"):
                    continue
                tensor, _ = shared((elements,), dtype, device=device, fill=operand(rank, elements, dtype))
                wanted = expected(op, size, elements, dtype)
                assert values.equal(ops.one_shot_all_reduce(tensor, op, world()), wanted), (dtype, op, elements)
                out = torch.zeros(elements, dtype=dtype, device=device)
                ops.one_shot_all_reduce_out(tensor, op, world(), out)
                assert values.equal(out, wanted)
                local = operand(rank, elements, dtype).to(device)
                assert values.equal(ops.one_shot_all_reduce_copy(tensor, local, op, world()), wanted)
                out.zero_()
                ops.two_shot_all_reduce_out(tensor, op, world(), out)
                assert values.equal(out, wanted)
                tensor.copy_(local)
                assert ops.two_shot_all_reduce_(tensor, op, world()).data_ptr() == tensor.data_ptr()
                assert values.equal(tensor, wanted)
    tensor, _ = shared((3,), torch.float32, device=device, fill=float(rank))
    assert ops.one_shot_all_reduce(tensor, "avg", world()).tolist() == [(size - 1) / 2] * 3
    inexact, _ = shared((1001,), device=device, fill=torch.randn(1001, generator=torch.Generator().manual_seed(rank)))
    one = ops.one_shot_all_reduce(inexact, "sum", world())
    assert values.equal(ops.two_shot_all_reduce_(inexact, "sum", world()), one.cpu()), "one way or the other: the same bits"
    return one.cpu().numpy().tobytes()


def scatters_and_gathers(rank, size, device):
    ops = torch.ops.symm_mem
    rows, columns = 3 * size, 2 * size
    full = [(torch.arange(rows * columns) * (r + 1)).reshape(rows, columns).float() for r in range(size)]
    total = sum(full)
    tensor, _ = shared((rows, columns), device=device, fill=full[rank])
    out = torch.empty(3, columns, device=device)
    assert values.equal(ops.reduce_scatter_out(tensor, world(), False, out), total.chunk(size)[rank])
    out = torch.empty(rows, 2, device=device)
    assert values.equal(ops.reduce_scatter_out(tensor, world(), True, out), total.chunk(size, dim=1)[rank])
    assert values.equal(ops._low_contention_reduce_scatter(tensor, "sum", world()), total.chunk(size)[rank])
    assert values.equal(ops._low_contention_reduce_scatter(tensor, "avg", world()), total.chunk(size)[rank] / size)
    assert values.equal(ops._low_contention_all_gather(tensor, world()), torch.cat(full))
    tile, out = tensor[1:4, 1:3], torch.zeros(3, 2, device=device)
    ops.tile_reduce(tile, out, size - 1, world())
    assert values.equal(out, total[1:4, 1:3] if rank == size - 1 else torch.zeros(3, 2))
    tiles = [tensor[r : r + 2, :2] for r in range(size)]
    out = torch.zeros(2, 2, device=device)
    ops.multi_root_tile_reduce(tiles, out, list(range(size)), world(), "max")
    assert values.equal(out, full[-1][rank : rank + 2, :2])
    remote = ops.get_remote_tensors(tensor[2], world())
    for peer in range(size):
        assert values.equal(remote[peer], full[peer][2])
    dist.barrier()
    settle(device)


def words(rank, size, device):
    tensor, handle = shared((10,), torch.int32, device=device, fill=0)
    torch.ops.symm_mem.memset32_(tensor, 2, 5, 3)
    torch.ops.symm_mem.stream_write_value32_(tensor, 9, 2**32 - 1)
    assert tensor.tolist() == [0, 0, 5, 5, 5, 0, 0, 0, 0, -1]
    unsigned = symm_mem.empty(3, dtype=torch.uint32, device=device)
    torch._C._distributed_c10d._SymmetricMemory.memset32(unsigned, 0, 2**32 - 2, 3)
    assert unsigned.view(torch.int32).tolist() == [-2] * 3
    with pytest.raises(ValueError, match="words 8 to 10 are not all in a tensor of 10"):
        torch.ops.symm_mem.memset32_(tensor, 8, 1, 3)


def refusals(rank, size, device):
    ops = torch.ops.symm_mem
    tensor, _ = shared((4, 4), device=device, fill=0)
    with pytest.raises(NotImplementedError, match="needs multicast memory.*two_shot_all_reduce_"):
        ops.multimem_all_reduce_(tensor, "sum", world())
    with pytest.raises(NotImplementedError, match="needs multicast memory"):
        ops.multimem_all_gather_out(tensor, world(), tensor)
    with pytest.raises(ValueError, match="needs a tensor in symmetric memory"):
        ops.one_shot_all_reduce(torch.ones(4, device=device), "sum", world())
    with pytest.raises(ValueError, match="'mean' is no reduction"):
        ops.one_shot_all_reduce(tensor, "mean", world())
    with pytest.raises(ValueError, match="input to be contiguous"):
        ops.one_shot_all_reduce(tensor.t(), "sum", world())
    with pytest.raises(TypeError, match="not defined on float32"):
        ops.one_shot_all_reduce(tensor, "band", world())
    with pytest.raises(ValueError, match="cannot cut 4 into equal parts for 3 ranks"):
        ops.reduce_scatter_out(tensor, world(), False, tensor)


@pytest.mark.parametrize("size", [2, 3])
def test_reductions_are_exact_and_the_same_on_all_ranks(device, size):
    results = run_ranks(all_reduces, size, device, timeout=120)
    assert len(set(results)) == 1


@pytest.mark.parametrize("size", [2, 3])
def test_scatter_gather_and_tiles(device, size):
    run_ranks(scatters_and_gathers, size, device)


def test_words_are_written(device):
    run_ranks(words, 1, device)


def test_what_cannot_be_done_is_said(device):
    run_ranks(refusals, 3, device)


def operators_in_stream_order(rank, size):
    tensor, handle = shared((5000,), device="sim", fill=0)
    torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())
    torch.sim.synchronize()
    begin = time.monotonic()
    torch.sim._sleep(QUEUED_MS * (rank + 1) // 2)
    tensor.fill_(rank + 1)
    total = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())
    tensor.fill_(2 * (rank + 1))  # behind the reduction, so the others have read by then
    torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", world())
    assert time.monotonic() - begin < AT_ONCE, "issuing waited for the device"
    assert values.equal(total, torch.full((5000,), size * (size + 1) / 2))
    assert values.equal(tensor, torch.full((5000,), float(size * (size + 1))))


def test_operators_keep_the_order_of_streams(sim):
    run_ranks(operators_in_stream_order, 3)


# --- lifetime -----------------------------------------------------------------------------------------------------------


def early_free(rank, size, device):
    """The tensor and the handle may go at once, and other tensors may come in their place: nobody reads wrong data."""
    for lap in range(6):
        tensor, handle = shared((20_000,), device=device, fill=0)
        delay(device) if lap < 2 and rank == 0 else None
        tensor.fill_(lap + rank)
        result = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", world())
        handle.barrier()
        peer = handle.get_buffer((rank + 1) % size, (20_000,), torch.float32).clone()
        del tensor, handle
        rubbish = [torch.full((20_000,), -1e9, device=device) for _ in range(4)]
        assert values.equal(result, torch.full((20_000,), float(size * lap + size * (size - 1) // 2)))
        if lap % 2 == 0:
            dist.barrier()  # on odd laps the owner may have freed the memory before the peer's copy
            assert values.equal(peer, torch.full((20_000,), float(lap + (rank + 1) % size)))
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
        return mappings("memfd:hccl-like-symmetric"), files("hccl-like-symmetric"), mappings("memfd:torch_sim"), files("torch_sim")

    warm = shared((100,), device=device)
    warm[1].barrier()
    settle(device)
    dist.barrier()
    del warm
    dist.barrier()
    before = count()
    assert before[:2] == (0, 0)
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
    assert not [name for name in os.listdir("/dev/shm") if re.search("symmetric|torch_sim", name)]

"""Memory that the ranks on one host can map: which tensors have it, and that calls on every kind of it are right."""

import gc
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.multiprocessing

import hccl_like
from hccl_like import _extension
from ranks import run_ranks

COUNT = 4099  # odd, and too large for the board


def where(tensor):
    return _extension.load()._shared_range(tensor)


def in_use():
    return _extension.load()._shared_pool()["used"]


def make_pool(device):
    return hccl_like.empty(COUNT)


def make_allocated(device):
    backend = dist.group.WORLD._get_backend(torch.device(device))
    return backend.allocate_tensor(COUNT, dtype=torch.float32, device=torch.device(device, 0))


def make_torch_shared(device):
    return torch.empty(COUNT).share_memory_()


def make_slice(device):
    return hccl_like.empty(3, COUNT)[1]


def make_symmetric(device):
    return symm_mem.empty(COUNT, device=device)


def make_ordinary(device):
    return torch.empty(COUNT, device=device)


def make_strided(device):
    return torch.empty(COUNT, 2, device=device)[:, 0]


MAPPABLE = [make_pool, make_allocated, make_torch_shared, make_slice, make_symmetric]


@pytest.fixture(params=[*MAPPABLE, make_ordinary, make_strided], ids=lambda make: make.__name__[5:])
def make(request):
    return request.param


# ------------------------------------------------------------------------------------------------ which tensors have it


def test_a_tensor_of_the_pool_is_mappable():
    tensor = hccl_like.empty(100, 50, dtype=torch.bfloat16)
    assert tensor.shape == (100, 50) and tensor.dtype == torch.bfloat16 and tensor.is_contiguous()
    assert hccl_like.is_mappable(tensor) and hccl_like.is_mappable(tensor[7]) and hccl_like.is_mappable(tensor.view(-1)[33:])
    (handle, base), (other, offset) = where(tensor), where(tensor[3])
    assert handle == other and offset == base + 3 * 50 * 2
    assert hccl_like.empty((10, 10)).shape == (10, 10) and hccl_like.empty(torch.Size([3])).shape == (3,)


def test_ordinary_tensors_are_not():
    hccl_like.empty(COUNT)
    for tensor in torch.empty(100), torch.empty(1 << 20), torch.empty(0), torch.empty(1 << 23):
        assert not hccl_like.is_mappable(tensor)
    assert not hccl_like.is_mappable(hccl_like.empty(100, 100).t()), "not in one piece"
    assert not hccl_like.is_mappable(hccl_like.empty(0))


def test_a_tensor_that_torch_shares_is_mappable():
    tensor = torch.empty(100, 7).share_memory_()
    (handle, base), (other, offset) = where(tensor), where(tensor[2])
    assert base == 0 and handle == other and offset == 2 * 7 * 4
    assert where(torch.empty(100, 7).share_memory_())[0] != handle


def test_a_tensor_that_torch_shares_by_name_is_not():
    strategy = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        assert not hccl_like.is_mappable(torch.empty(COUNT).share_memory_())
    finally:
        torch.multiprocessing.set_sharing_strategy(strategy)


def sim_tensor(rank, size):
    tensor = torch.empty(COUNT, device="sim")
    assert hccl_like.is_mappable(tensor)
    (handle, base), (other, offset) = where(tensor), where(tensor[5:])
    assert handle == other and offset == base + 20


def test_a_tensor_of_the_accelerator_is(sim):
    run_ranks(sim_tensor, 1)


def small(rank, size):
    assert not hccl_like.is_mappable(hccl_like.empty(10)), "the board takes it"
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert hccl_like.is_mappable(backend.allocate_tensor(COUNT, dtype=torch.int8, device=torch.device("cpu")))
    assert not hccl_like.is_mappable(backend.allocate_tensor(COUNT, dtype=torch.int8, device=torch.device("meta")))


def test_what_is_small_stays_in_ordinary_memory():
    run_ranks(small, 1)


def test_memory_goes_back_to_the_pool():
    gc.collect()
    before = in_use()
    tensor = hccl_like.empty(100_000)
    address = tensor.data_ptr()
    assert in_use() > before
    view = tensor[5:]
    del tensor
    assert in_use() > before, "a view keeps it"
    del view
    assert in_use() == before
    assert hccl_like.empty(100_000).data_ptr() == address


def test_a_tensor_of_the_pool_may_be_resized_and_pickled():
    tensor = hccl_like.empty(1000).fill_(3)
    tensor.resize_(5000)
    assert tensor[:1000].eq(3).all() and hccl_like.is_mappable(tensor)
    assert tensor.clone().eq(tensor).all() and not hccl_like.is_mappable(tensor.clone())


def test_a_forked_child_writes_its_own_new_tensors():
    tensor = hccl_like.empty(COUNT).fill_(1)
    child = os.fork()
    if child == 0:
        good = not hccl_like.is_mappable(tensor) and hccl_like.is_mappable(hccl_like.empty(COUNT))
        del tensor
        fresh = [hccl_like.empty(COUNT).fill_(2) for _ in range(10)]
        os._exit(0 if good and fresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tensor.eq(1).all()


# ---------------------------------------------------------------------------------------------------- calls on all kinds


def filled(make, device, value):
    return make(device).copy_(torch.arange(COUNT, dtype=torch.float32).remainder_(17).add_(value))


def expected(value):
    return torch.arange(COUNT, dtype=torch.float32).remainder_(17).add_(value)


def calls(rank, size, device, make, other):
    """`other` makes every second rank's tensors: ranks need not have the same kind."""
    if rank % 2:
        make = other
    for repeat in range(3):
        tensor = filled(make, device, rank + repeat)
        dist.all_reduce(tensor)
        everything = sum(expected(r + repeat) for r in range(size))
        assert torch.equal(tensor.cpu(), everything)

        tensor = filled(make, device, rank)
        dist.broadcast(tensor, src=1)
        assert torch.equal(tensor.cpu(), expected(1))

        parts = [make(device) for _ in range(size)]
        mine = filled(make, device, rank)
        dist.all_gather(parts, mine)
        assert all(torch.equal(part.cpu(), expected(r)) for r, part in enumerate(parts))

        dist.reduce_scatter(mine, [filled(make, device, rank + r) for r in range(size)])
        assert torch.equal(mine.cpu(), sum(expected(r + rank) for r in range(size)))

        outputs = [make(device) for _ in range(size)]
        dist.all_to_all(outputs, [filled(make, device, 10 * rank + r) for r in range(size)])
        assert all(torch.equal(output.cpu(), expected(10 * r + rank)) for r, output in enumerate(outputs))

        work = dist.all_reduce(tensor := filled(make, device, rank), dist.ReduceOp.MAX, async_op=True)
        work.wait()
        assert torch.equal(tensor.cpu(), expected(size - 1))


def test_calls_are_right_on_every_kind_of_memory(make, device):
    run_ranks(calls, 3 if make is make_pool else 2, device, make, make)


def test_ranks_need_not_have_the_same_kind_of_memory(make):
    run_ranks(calls, 2, "cpu", make, make_ordinary)
    run_ranks(calls, 2, "cpu", make_torch_shared, make)


def whole_tensors(rank, size, device):
    make = hccl_like.empty if device == "cpu" else lambda *sizes: torch.empty(*sizes, device=device)
    mine, all_of_it = make(COUNT), make(size, COUNT)
    mine.copy_(expected(rank))
    dist.all_gather_into_tensor(all_of_it, mine)
    assert all(torch.equal(all_of_it[r].cpu(), expected(r)) for r in range(size))
    dist.reduce_scatter_tensor(mine, all_of_it)
    assert torch.equal(mine.cpu(), expected(rank) * size)
    dist.all_gather_into_tensor(all_of_it, all_of_it[rank].copy_(expected(rank + 5)))  # in place
    assert all(torch.equal(all_of_it[r].cpu(), expected(r + 5)) for r in range(size))
    swapped = make(size, COUNT)
    dist.all_to_all_single(swapped, all_of_it)
    assert all(torch.equal(swapped[r].cpu(), expected(rank + 5)) for r in range(size))
    sizes = [1000 * (r + 1) for r in range(size)]
    source = make(sum(sizes)).copy_(torch.arange(sum(sizes)))
    target = make(1000 * (rank + 1) * size)
    dist.all_to_all_single(target, source, [1000 * (rank + 1)] * size, sizes)
    begin = sum(sizes[:rank])
    assert torch.equal(target.cpu(), torch.arange(begin, begin + sizes[rank], dtype=torch.float32).repeat(size))
    overlapping = make(2 * COUNT).copy_(torch.cat([expected(rank), expected(0)]))
    dist.all_gather_into_tensor(all_of_it, overlapping[:COUNT])
    dist.reduce_scatter_tensor(all_of_it[0], all_of_it)  # the output lies in the input, where it should not
    assert torch.equal(all_of_it[0].cpu(), expected(rank) * size)


def test_whole_tensors_and_those_that_overlap(device):
    run_ranks(whole_tensors, 3, device)


def lists(rank, size, device, make, other):
    """Coalesced calls and lists that name a tensor twice. `other` makes one tensor of each input."""
    group, place = dist.group.WORLD, make(device).device  # the pool is the host's
    for _ in range(2):
        parts = [filled(make, device, rank), filled(other, device, rank + 1), filled(make, device, rank + 2)]
        wholes = [torch.zeros(size * COUNT, device=place) for _ in parts]
        group.allgather_into_tensor_coalesced(wholes, parts).wait()
        for i, whole in enumerate(wholes):
            assert torch.equal(whole.cpu(), torch.cat([expected(r + i) for r in range(size)]))
        both = make(device), other(device)
        for tensor, part in zip(both, parts):
            tensor.copy_(part)
        group.allreduce_coalesced([*both]).wait()
        for i, tensor in enumerate(both):
            assert torch.equal(tensor.cpu(), sum(expected(r + i) for r in range(size)))
        outputs = [make(device) for _ in range(size)]
        dist.all_to_all(outputs, [parts[0]] * size)
        assert all(torch.equal(output.cpu(), expected(r)) for r, output in enumerate(outputs))
    if make is make_ordinary:
        return
    whole = [hccl_like.empty(size, COUNT) if place.type == "cpu" else torch.empty(size, COUNT, device=place) for _ in range(20)]
    for i, tensor in enumerate(whole):
        tensor.copy_(torch.stack([expected(rank + r + i) for r in range(size)]))
    sums = [make(device) for _ in whole]
    group.reduce_scatter_tensor_coalesced(sums, whole).wait()
    for i, tensor in enumerate(sums):
        assert torch.equal(tensor.cpu(), sum(expected(r + rank + i) for r in range(size)))


def test_lists_are_right_on_every_kind_of_memory(make, device):
    run_ranks(lists, 3 if make is make_pool else 2, device, make, make)


def test_a_list_need_not_be_of_one_kind_of_memory(make):
    run_ranks(lists, 2, "cpu", make, make_ordinary)


LONG = (2 << 20) + 4 * 33  # bytes: more than one block of a long message


def messages(rank, size, device, make_first, make_second):
    """Round the ring, in both orders, alone, in a batch and from whoever sends."""
    count = LONG // 4
    numbers = torch.arange(count, dtype=torch.float32)
    to, source = (rank + 1) % size, (rank - 1) % size
    out, into = make_first(count, device).copy_(numbers.add(rank)), make_second(count, device).zero_()
    work = dist.isend(out, to)
    dist.recv(into, source)
    work.wait()
    assert torch.equal(into.cpu(), numbers + source)
    into.zero_()
    ops = [dist.P2POp(dist.irecv, into, source), dist.P2POp(dist.isend, out, to)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(into.cpu(), numbers + source)
    into.zero_()
    work = dist.isend(out[1:], to, tag=3)
    assert dist.recv(into[:-1], tag=3) == source
    work.wait()
    assert torch.equal(into[:-1].cpu(), numbers[1:] + source) and into[-1] == 0


def of_pool(count, device):
    return hccl_like.empty(count)


def of_torch(count, device):
    return torch.empty(count).share_memory_()


def of_device(count, device):
    return torch.empty(count, device=device)


@pytest.mark.parametrize("first, second", [(of_pool, of_pool), (of_pool, of_device), (of_torch, of_pool), (of_device, of_torch)])
def test_long_messages_are_right_on_every_kind_of_memory(first, second):
    run_ranks(messages, 2, "cpu", first, second)


def test_long_messages_of_the_accelerator_are_right(sim):
    run_ranks(messages, 3, "sim", of_device, of_device)


def recycled(rank, size):
    """Memory that is freed and made again, at the same address or another, is never taken for what it was."""
    for i in range(40):
        count = COUNT + 1000 * (i % 7)
        tensor = (hccl_like.empty(count) if (i + rank) % 3 else torch.empty(count).share_memory_()).fill_(i + rank)
        dist.all_reduce(tensor)
        assert tensor.eq(size * i + sum(range(size))).all()
        del tensor


def test_memory_that_is_used_again_is_not_mistaken_for_what_it_was():
    run_ranks(recycled, 2)

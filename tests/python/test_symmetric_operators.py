"""torch.ops.symm_mem on host tensors and on the accelerator."""

import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import values
from ranks import run_ranks
from symmetric import AT_ONCE, QUEUED_MS, settle, shared, world


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


def large_averages(rank, size, device):
    ops = torch.ops.symm_mem
    for dtype in values.FLOATS + values.NARROW:
        given, average = values.large(rank, size, 4 * size, dtype)
        tensor, _ = shared((4 * size,), dtype, device=device, fill=given)
        assert values.equal(ops.one_shot_all_reduce(tensor, "avg", world()), average), dtype
        assert values.equal(ops._low_contention_reduce_scatter(tensor, "avg", world()), average[:4]), dtype
        assert values.equal(ops.two_shot_all_reduce_(tensor, "avg", world()), average), dtype


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


@pytest.mark.parametrize("size", [2, 3, 8])
def test_averages_of_large_numbers_do_not_overflow(device, size):
    run_ranks(large_averages, size, device)


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

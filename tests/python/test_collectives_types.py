"""Every element type and every reduction that torch defines on it, and tensors of unusual shape."""

import pytest
import torch
import torch.distributed as dist

import values
from ranks import run_ranks

SIZES = [2, 3]


@pytest.fixture(params=SIZES)
def size(request):
    return request.param


def reference(op, tensors):
    dtype = tensors[0].dtype
    wide = torch.stack([tensor.to(values.widest(dtype)) for tensor in tensors])
    if op == dist.ReduceOp.SUM:
        return wide.sum(0).to(dtype)
    if op == dist.ReduceOp.AVG:
        mean = wide.sum(0) / len(tensors) if wide.is_floating_point() or wide.is_complex() else wide.sum(0).div(len(tensors), rounding_mode="trunc")
        return mean.to(dtype)
    if op == dist.ReduceOp.PRODUCT:
        return wide.prod(0).to(dtype)
    if op == dist.ReduceOp.MIN:
        return wide.amin(0).to(dtype)
    return wide.amax(0).to(dtype)


def sums_of_every_type(rank, size, device):
    for dtype in values.ALL:
        inputs = [values.plain(r, 67, dtype) for r in range(size)]
        tensor = inputs[rank].to(device, copy=True)
        dist.all_reduce(tensor)
        assert values.equal(tensor, reference(dist.ReduceOp.SUM, inputs)), dtype


def products_and_extremes(rank, size, device):
    for dtype in values.FLOATS + values.INTEGERS:
        for op, make in [
            (dist.ReduceOp.PRODUCT, values.factors),
            (dist.ReduceOp.MIN, values.plain),
            (dist.ReduceOp.MAX, values.plain),
        ]:
            inputs = [make(r, 67, dtype) for r in range(size)]
            tensor = inputs[rank].to(device, copy=True)
            dist.all_reduce(tensor, op)
            assert values.equal(tensor, reference(op, inputs)), (dtype, op)


def averages(rank, size, device):
    for dtype in values.FLOATS + values.COMPLEX:
        # Multiples of the number of ranks, so that the mean is a whole number.
        inputs = [values.plain(r, 67, dtype) * size for r in range(size)]
        tensor = inputs[rank].to(device, copy=True)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        assert values.equal(tensor, (values.total(inputs).to(values.widest(dtype)) / size).to(dtype)), dtype


def averages_of_large_numbers(rank, size, device):
    for dtype in values.FLOATS + values.NARROW:
        for count in (4, 4096, 1 << 20 if dtype == torch.float16 else 64):
            given, average = values.large(rank, size, count, dtype)
            tensor = given.to(device, copy=True)
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
            assert values.equal(tensor, average), (dtype, count)
            tensor = given.to(device, copy=True)
            dist.reduce(tensor, size - 1, dist.ReduceOp.AVG)
            assert values.equal(tensor, average if rank == size - 1 else given), (dtype, count)
            # As FSDP does: the shard is a part of the flat gradients.
            flat = given.repeat(size).to(device)
            shard = flat[rank * count : (rank + 1) * count]
            dist.reduce_scatter_tensor(shard, flat, dist.ReduceOp.AVG)
            assert values.equal(shard, average), (dtype, count)


def bit_operations(rank, size, device):
    for dtype in values.INTEGERS:
        inputs = [values.bits(r, 67, dtype) for r in range(size)]
        for op, combine in [
            (dist.ReduceOp.BAND, torch.bitwise_and),
            (dist.ReduceOp.BOR, torch.bitwise_or),
            (dist.ReduceOp.BXOR, torch.bitwise_xor),
        ]:
            tensor = inputs[rank].to(device, copy=True)
            dist.all_reduce(tensor, op)
            wide = [one.to(torch.int64) for one in inputs]
            expected = wide[0]
            for other in wide[1:]:
                expected = combine(expected, other)
            assert values.equal(tensor, expected.to(dtype)), (dtype, op)


def sums_of_multiples(rank, size, device):
    for factor in (0.5, torch.tensor([2.0]), torch.tensor([0.25], device=device)):
        inputs = [values.plain(r, 67, torch.float32) * 4 for r in range(size)]
        tensor = inputs[rank].to(device, copy=True)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        assert values.equal(tensor, values.total([one * float(factor) for one in inputs])), factor
        output = torch.zeros(0 + 5, device=device)
        dist.reduce_scatter_tensor(
            output, torch.ones(5 * size, device=device), op=dist._make_nccl_premul_sum(factor)
        )
        assert values.equal(output, torch.full((5,), float(factor) * size)), factor


def nan_spreads(rank, size, device):
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        tensor = torch.tensor([1.0, float("nan") if rank == 0 else 2.0, float(rank)], device=device)
        dist.all_reduce(tensor, op)
        assert torch.isnan(tensor.cpu()[1]), op


def every_type_travels(rank, size, device):
    for dtype in values.ALL + [torch.float8_e4m3fnuz]:
        output = torch.zeros(5 * size, device=device).to(dtype)
        source = torch.full((5,), rank + 1).to(torch.float32).to(dtype)
        dist.all_gather_into_tensor(output, source.to(device))
        expected = torch.cat([torch.full((5,), r + 1).to(torch.float32).to(dtype) for r in range(size)])
        assert values.equal(output, expected), dtype
        tensor = source.to(device, copy=True)
        dist.broadcast(tensor, 1)
        assert values.equal(tensor, torch.full((5,), 2).to(torch.float32).to(dtype)), dtype


def every_type_takes_every_way(rank, size, device):
    def part(number, dtype):
        return (torch.arange(3) + number).to(torch.float32).to(dtype)

    for dtype in values.NARROW + values.COMPLEX + [torch.float8_e4m3fnuz, torch.bool, torch.bfloat16]:
        mine = part(rank, dtype).to(device)
        everybody = [part(r, dtype) for r in range(size)]
        outputs = [torch.zeros_like(mine) for _ in range(size)]
        dist.gather(mine, outputs if rank == 0 else None)
        if rank == 0:
            assert all(map(values.equal, outputs, everybody)), dtype
        output = torch.zeros_like(mine)
        dist.scatter(output, [one.to(device) for one in everybody] if rank == 0 else None)
        assert values.equal(output, everybody[rank]), dtype
        outputs = [torch.zeros_like(mine) for _ in range(size)]
        dist.all_to_all(outputs, [mine] * size)
        assert all(map(values.equal, outputs, everybody)), dtype
        message = dist.isend(mine, (rank + 1) % size)
        dist.recv(output, (rank - 1) % size)
        message.wait()
        assert values.equal(output, everybody[rank - 1]), dtype
    for dtype in values.NARROW:
        inputs = [values.plain(r, 2 * size, dtype) for r in range(size)]
        output = torch.zeros(2, device=device).to(dtype)
        dist.reduce_scatter_tensor(output, inputs[rank].to(device))
        assert values.equal(output, values.total(inputs)[2 * rank : 2 * rank + 2]), dtype


def complex_reaches_every_reduction(rank, size, device):
    inputs = [values.plain(r, 2 * size, torch.complex64) for r in range(size)]
    tensor = inputs[rank].to(device, copy=True)
    dist.reduce(tensor, 0)
    if rank == 0:
        assert values.equal(tensor, values.total(inputs))
    output = torch.zeros(2, dtype=torch.complex64, device=device)
    dist.reduce_scatter_tensor(output, inputs[rank].to(device, copy=True))
    assert values.equal(output, values.total(inputs)[2 * rank : 2 * rank + 2])


def several_types_in_one_block(rank, size, device):
    tensors = [values.plain(rank, 9, dtype).to(device) for dtype in (torch.float32, torch.int64, torch.bfloat16)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        assert values.equal(tensor, values.total([values.plain(r, 9, tensor.dtype) for r in range(size)]))


def strided_views(rank, size, device):
    # A column, a transposed matrix, and channels last: different strides on different ranks.
    base = values.plain(rank, 60, torch.float32).view(6, 10)
    whole = [values.plain(r, 60, torch.float32).view(6, 10) for r in range(size)]
    tensor = base.to(device, copy=True)
    dist.all_reduce(tensor[:, 3])
    expected = base.clone()
    expected[:, 3] = values.total([one[:, 3] for one in whole])
    assert values.equal(tensor, expected), "only the column changes"

    tensor = base.to(device, copy=True)
    view = tensor.t() if rank == 0 else tensor.t().contiguous()
    dist.all_reduce(view)
    assert values.equal(view, values.total([one.t() for one in whole])), "logical order counts, not memory order"

    image = values.plain(rank, 2 * 3 * 4 * 5, torch.float32).view(2, 3, 4, 5).to(device)
    image = image.contiguous(memory_format=torch.channels_last) if rank else image
    dist.broadcast(image, 1)
    assert values.equal(image, values.plain(1, 2 * 3 * 4 * 5, torch.float32).view(2, 3, 4, 5))


def strided_outputs(rank, size, device):
    grid = torch.zeros(4, size, device=device)
    dist.all_gather([grid[:, r] for r in range(size)], values.plain(rank, 4, torch.float32).to(device))
    for r in range(size):
        assert values.equal(grid[:, r], values.plain(r, 4, torch.float32))
    wide = torch.zeros(3, 8, device=device)
    work = dist.all_reduce(wide[:, ::2].add_(rank + 1), async_op=True)
    work.wait()
    assert values.equal(wide[:, 1::2], torch.zeros(3, 4)), "what lies between is left alone"
    assert values.equal(wide[:, ::2], torch.full((3, 4), size * (size + 1) / 2))


def expanded_inputs(rank, size, device):
    source = torch.full((1,), float(rank + 1), device=device).expand(5)
    output = torch.zeros(5 * size, device=device)
    dist.all_gather_into_tensor(output, source)
    assert values.equal(output, torch.cat([torch.full((5,), float(r + 1)) for r in range(size)]))


def lazily_conjugated(rank, size, device):
    # gather() is where such a tensor gets past the conversions of torch's Python layer.
    outputs = [torch.zeros(6, dtype=torch.complex64, device=device) for _ in range(size)] if rank == 0 else None
    dist.gather(values.plain(rank, 6, torch.complex64).to(device).conj(), outputs, dst=0)
    for r in range(size if rank == 0 else 0):
        assert values.equal(outputs[r], values.plain(r, 6, torch.complex64).conj().resolve_conj())


def no_dimensions(rank, size, device):
    tensor = torch.tensor(float(rank + 1), device=device)
    dist.all_reduce(tensor)
    assert tensor.item() == size * (size + 1) / 2
    output = torch.zeros(size, device=device)
    dist.all_gather_into_tensor(output, torch.tensor(float(rank), device=device))
    assert values.equal(output, torch.arange(float(size)))
    tensor = torch.tensor(rank, device=device)
    dist.broadcast(tensor, size - 1)
    assert tensor.item() == size - 1
    if rank == 0:
        dist.send(torch.tensor(7, device=device), 1)
    elif rank == 1:
        tensor = torch.tensor(0, device=device)
        dist.recv(tensor, 0)
        assert tensor.item() == 7


CASES = [
    sums_of_every_type, products_and_extremes, averages, averages_of_large_numbers, bit_operations, sums_of_multiples, nan_spreads,
    every_type_travels, every_type_takes_every_way, complex_reaches_every_reduction, several_types_in_one_block, strided_views, strided_outputs,
    expanded_inputs, lazily_conjugated, no_dimensions,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gives_exact_results(case, device, size):
    run_ranks(case, size, device)


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "direct"])
def test_averages_do_not_overflow_on_the_way(algorithm, size):
    forced = {"HCCL_LIKE_ALGO": f"allreduce:{algorithm};reduce_scatter:{'direct' if algorithm == 'direct' else 'ring'}"}
    run_ranks(averages_of_large_numbers, size, "cpu", environment=forced)


def all_reduce_bytes(rank, size, device, op):
    """The result's bytes, of inputs whose sum depends on the order of summation."""
    torch.manual_seed(rank)
    tensors = [torch.randn(count).to(dtype) for count in (7, 1000, 300_001) for dtype in values.FLOATS]
    results = []
    for tensor in tensors:
        tensor = tensor.to(device)
        dist.all_reduce(tensor, op)
        results.append(tensor.cpu().view(torch.uint8).numpy().tobytes())
    return results


@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.AVG], ids=["sum", "avg"])
@pytest.mark.parametrize("size", [3, 4])
def test_all_ranks_end_with_the_same_bits(device, transport, size, op):
    results = run_ranks(all_reduce_bytes, size, device, op, environment=transport)
    for rank in range(1, size):
        assert results[rank] == results[0], f"rank {rank} differs from rank 0"


def more_than_two_gib(rank, size, device):
    count = (1 << 31) + 5
    tensor = torch.full((count,), rank + 1, dtype=torch.uint8, device=device)
    tensor[-1] = 10 * (rank + 1)
    dist.all_reduce(tensor)
    total = size * (size + 1) // 2
    assert tensor[0].item() == total
    assert tensor[-1].item() == 10 * total
    assert int(tensor[-1000:-1].long().sum()) == 999 * total
    assert bool((tensor[: 1 << 20] == total).all())


@pytest.mark.slow
def test_sums_more_bytes_than_an_int_can_count(device, transport):
    run_ranks(more_than_two_gib, 2, device, environment=transport, timeout=600, group_timeout=500)

"""Every collective on every kind of device and transport, with exact results on any number of ranks."""

import os

import pytest
import torch
import torch.distributed as dist

import values
from ranks import run_ranks

# By day the C++ tests of collectives/ have the others.
SIZES = [1, 3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 4, 8))]
# scripts/cuda_check.sh gives others.
COUNTS = [int(count) for count in os.environ.get("RANKS_COUNTS", "0,1,5,1027").split(",")]


@pytest.fixture(params=SIZES)
def size(request):
    return request.param


def each_rank(size, count, dtype=torch.float32, make=values.plain):
    return [make(rank, count, dtype) for rank in range(size)]


def check(actual, expected, what):
    assert values.equal(actual, expected), f"{what}: got {actual}, expected {expected}"


# ------------------------------------------------------------------------------------------------------- functions
# Each runs on one rank and checks its own results.


def all_reduce(rank, size, device):
    for count in COUNTS:
        inputs = each_rank(size, count)
        tensor = inputs[rank].to(device, copy=True)
        dist.all_reduce(tensor)
        check(tensor, values.total(inputs), f"sum of {count}")


def all_reduce_async(rank, size, device):
    tensors = [values.plain(rank, 10 + i, torch.float32).to(device) for i in range(16)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i, work in reversed(list(enumerate(works))):
        work.wait()
        check(tensors[i], values.total(each_rank(size, 10 + i)), f"call {i}")
        assert work.is_success() or device != "cpu"


def broadcast(rank, size, device):
    for count in COUNTS:
        for root in range(size):
            tensor = values.plain(rank, count, torch.int64).to(device)
            dist.broadcast(tensor, root)
            check(tensor, values.plain(root, count, torch.int64), f"{count} from {root}")


def reduce(rank, size, device):
    for count in COUNTS:
        for root in range(size):
            inputs = each_rank(size, count, torch.float64)
            tensor = inputs[rank].to(device, copy=True)
            dist.reduce(tensor, root)
            expected = values.total(inputs) if rank == root else inputs[rank]
            check(tensor, expected, f"{count} to {root}: the others keep what they have")


def all_gather(rank, size, device):
    for count in COUNTS:
        outputs = [torch.zeros(count, dtype=torch.int32, device=device) for _ in range(size)]
        dist.all_gather(outputs, values.plain(rank, count, torch.int32).to(device))
        for other in range(size):
            check(outputs[other], values.plain(other, count, torch.int32), f"{count} from {other}")


def all_gather_uneven(rank, size, device):
    outputs = [torch.zeros(3 * other + 1, device=device) for other in range(size)]
    dist.all_gather(outputs, values.plain(rank, 3 * rank + 1, torch.float32).to(device))
    for other in range(size):
        check(outputs[other], values.plain(other, 3 * other + 1, torch.float32), f"from {other}")


def all_gather_into_tensor(rank, size, device):
    for count in COUNTS:
        output = torch.zeros(count * size, device=device)
        dist.all_gather_into_tensor(output, values.plain(rank, count, torch.float32).to(device))
        check(output, torch.cat(each_rank(size, count)), f"{count} each")


def all_gather_in_place(rank, size, device):
    output = torch.zeros(7 * size, device=device)
    own = output[7 * rank : 7 * rank + 7]
    own.copy_(values.plain(rank, 7, torch.float32))
    dist.all_gather_into_tensor(output, own)
    check(output, torch.cat(each_rank(size, 7)), "the input is part of the output")


def all_gather_from_a_wrong_part(rank, size, device):
    output = torch.zeros(7 * size, device=device)
    other = (rank + 1) % size
    part = output[7 * other : 7 * other + 7]
    part.copy_(values.plain(rank, 7, torch.float32))
    dist.all_gather_into_tensor(output, part)
    check(output, torch.cat(each_rank(size, 7)), "the input lies where another rank's part goes")


def reduce_scatter(rank, size, device):
    for count in COUNTS:
        inputs = [[values.plain(r + p, count, torch.float32) for p in range(size)] for r in range(size)]
        output = torch.zeros(count, device=device)
        dist.reduce_scatter(output, [part.to(device) for part in inputs[rank]])
        check(output, values.total([inputs[r][rank] for r in range(size)]), f"{count} each")


def reduce_scatter_uneven(rank, size, device):
    inputs = [[values.plain(r, p + 2, torch.float32) for p in range(size)] for r in range(size)]
    output = torch.zeros(rank + 2, device=device)
    dist.reduce_scatter(output, [part.to(device) for part in inputs[rank]])
    check(output, values.total([inputs[r][rank] for r in range(size)]), "parts of several sizes")


def reduce_scatter_tensor(rank, size, device):
    for count in COUNTS:
        inputs = each_rank(size, count * size)
        output = torch.zeros(count, device=device)
        dist.reduce_scatter_tensor(output, inputs[rank].to(device), op=dist.ReduceOp.SUM)
        check(output, values.total(inputs)[rank * count : (rank + 1) * count], f"{count} each")


def reduce_scatter_in_place(rank, size, device):
    inputs = each_rank(size, 5 * size)
    tensor = inputs[rank].to(device, copy=True)
    output = tensor[5 * rank : 5 * rank + 5]
    dist.reduce_scatter_tensor(output, tensor)
    check(output, values.total(inputs)[5 * rank : 5 * rank + 5], "the output is part of the input")


def gather(rank, size, device):
    for count in COUNTS:
        for root in range(size):
            outputs = [torch.zeros(count, device=device) for _ in range(size)] if rank == root else None
            dist.gather(values.plain(rank, count, torch.float32).to(device), outputs, dst=root)
            for other in range(size if rank == root else 0):
                check(outputs[other], values.plain(other, count, torch.float32), f"{count} from {other}")


def scatter(rank, size, device):
    for count in COUNTS:
        for root in range(size):
            inputs = [values.plain(p + 3, count, torch.int16).to(device) for p in range(size)] if rank == root else None
            output = torch.zeros(count, dtype=torch.int16, device=device)
            dist.scatter(output, inputs, src=root)
            check(output, values.plain(rank + 3, count, torch.int16), f"{count} from {root}")


def gather_and_scatter_uneven(rank, size, device):
    """Each part has its own size, some have none; only the root and the rank in question know it."""
    for root in range(size):
        parts = [values.plain(r, 3 * r, torch.float32).to(device) for r in range(size)]
        gathered = [torch.full_like(part, -1) for part in parts] if rank == root else None
        dist.gather(parts[rank], gathered, root)
        for r, part in enumerate(gathered or []):
            check(part, parts[r], f"part {r} at {root}")
        output = torch.full_like(parts[rank], -1)
        dist.scatter(output, parts if rank == root else None, root)
        check(output, parts[rank], f"from {root}")


def repeated_outputs(rank, size, device):
    """One tensor may stand for several outputs, and outputs may be parts of one tensor, the input's too."""
    one = torch.zeros(3, device=device)
    dist.all_gather([one] * size, torch.full((3,), 4.0, device=device))
    check(one, torch.full((3,), 4.0), "one output for all")
    table = torch.full((size, 5), -1.0, device=device)
    table[rank] = rank
    dist.all_gather(list(table.unbind(0)), table[rank])
    check(table, torch.arange(float(size)).repeat_interleave(5).view(size, 5), "rows of a table")


def all_to_all(rank, size, device):
    # Rank r sends r + p + 1 elements to rank p, beginning with 10 r + p.
    inputs = [values.plain(10 * rank + p, rank + p + 1, torch.float32).to(device) for p in range(size)]
    outputs = [torch.zeros(rank + p + 1, device=device) for p in range(size)]
    dist.all_to_all(outputs, inputs)
    for p in range(size):
        check(outputs[p], values.plain(10 * p + rank, rank + p + 1, torch.float32), f"from {p}")


def all_to_all_single(rank, size, device):
    for count in COUNTS:
        output = torch.zeros(size * count, 2, device=device)
        source = values.plain(rank, size * count * 2, torch.float32).view(size * count, 2)
        dist.all_to_all_single(output, source.to(device))
        parts = [values.plain(p, size * count * 2, torch.float32).view(size, count, 2)[rank] for p in range(size)]
        check(output, torch.cat(parts), f"{count} rows each")


def all_to_all_single_splits(rank, size, device):
    # Rank r sends (r + p) % 3 rows to rank p, so some get none.
    to = [(rank + p) % 3 for p in range(size)]
    source = values.plain(rank, 2 * sum(to), torch.int64).view(-1, 2)
    output = torch.zeros(sum(to), 2, dtype=torch.int64, device=device)
    dist.all_to_all_single(output, source.to(device), to, to)
    expected = []
    for p in range(size):
        its = [(p + q) % 3 for q in range(size)]
        rows = values.plain(p, 2 * sum(its), torch.int64).view(-1, 2)
        expected.append(rows[sum(its[:rank]) : sum(its[: rank + 1])])
    check(output, torch.cat(expected), "uneven rows")


def coalesced(rank, size, device):
    tensors = [values.plain(rank, count, torch.float32).to(device) for count in (3, 0, 1, 9)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor, count in zip(tensors, (3, 0, 1, 9)):
        check(tensor, values.total(each_rank(size, count)), f"all_reduce of {count}")

    outputs = [torch.zeros(size * count, device=device) for count in (2, 5)]
    with dist._coalescing_manager():
        for output, count in zip(outputs, (2, 5)):
            dist.all_gather_into_tensor(output, values.plain(rank, count, torch.float32).to(device))
    for output, count in zip(outputs, (2, 5)):
        check(output, torch.cat(each_rank(size, count)), f"all_gather of {count}")

    outputs = [torch.zeros(count, device=device) for count in (2, 5)]
    with dist._coalescing_manager():
        for output, count in zip(outputs, (2, 5)):
            dist.reduce_scatter_tensor(output, values.plain(rank, size * count, torch.float32).to(device))
    for output, count in zip(outputs, (2, 5)):
        expected = values.total(each_rank(size, size * count))[rank * count : (rank + 1) * count]
        check(output, expected, f"reduce_scatter of {count}")


def messages(rank, size, device):
    for count in COUNTS:
        if rank > 0:
            dist.send(values.plain(rank, count, torch.float32).to(device), 0, tag=count)
        else:
            for other in range(1, size):
                tensor = torch.zeros(count, device=device)
                assert dist.recv(tensor, other, tag=count) == other
                check(tensor, values.plain(other, count, torch.float32), f"{count} from {other}")


def messages_from_any(rank, size, device):
    if rank > 0:
        dist.send(torch.full((3,), rank, device=device), 0)
    heard = set()
    for _ in range(1, size if rank == 0 else 1):
        tensor = torch.zeros(3, dtype=torch.int64, device=device)
        source = dist.recv(tensor)
        check(tensor, torch.full((3,), source), f"from {source}")
        heard.add(source)
    assert heard == set(range(1, size) if rank == 0 else [])
    dist.barrier()  # a receive from any rank would take what a faster rank sends next


def exchange(rank, size, device):
    """Everybody receives before he sends, one way with large messages: nobody may wait for the other's receive."""
    next_rank, previous = (rank + 1) % size, (rank - 1) % size
    if size == 1:
        return
    for count in (4, 400_003):
        incoming = torch.zeros(count, device=device)
        outgoing = values.plain(rank, count, torch.float32).to(device)
        receiving = dist.irecv(incoming, previous)
        sending = dist.isend(outgoing, next_rank)
        sending.wait()
        receiving.wait()
        check(incoming, values.plain(previous, count, torch.float32), f"{count} from {previous}")


def batch(rank, size, device):
    next_rank, previous = (rank + 1) % size, (rank - 1) % size
    if size == 1:
        return
    outgoing = values.plain(rank, 50_001, torch.float32).to(device)
    incoming = torch.zeros(50_001, device=device)
    operations = [dist.P2POp(dist.irecv, incoming, previous), dist.P2POp(dist.isend, outgoing, next_rank)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    check(incoming, values.plain(previous, 50_001, torch.float32), f"from {previous}")


def objects(rank, size, device):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (rank * 100)})
    assert [one["rank"] for one in gathered] == list(range(size))
    shared = [{"a": 1}, "b"] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(shared, src=size - 1)
    assert shared == [{"a": 1}, "b"]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {p}" for p in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]


def barrier(rank, size, device):
    dist.barrier()
    dist.barrier(async_op=True).wait()


CASES = [
    all_reduce, all_reduce_async, broadcast, reduce, all_gather, all_gather_uneven, all_gather_into_tensor,
    all_gather_in_place, all_gather_from_a_wrong_part, reduce_scatter, reduce_scatter_uneven, reduce_scatter_tensor,
    reduce_scatter_in_place, gather, scatter, gather_and_scatter_uneven,
    repeated_outputs, all_to_all, all_to_all_single, all_to_all_single_splits, coalesced,
    messages, messages_from_any, exchange, batch, objects, barrier,
]  # fmt: skip


def every_collective(rank, size, device="cpu"):
    """For other suites: all of them in one group, one after the other."""
    for case in CASES:
        try:
            case(rank, size, device)
        except Exception as error:
            raise AssertionError(f"{case.__name__}: {error}") from error
        dist.barrier()  # a receive from anybody must not meet the next case's messages


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gives_exact_results(case, device, transport, size):
    run_ranks(case, size, device, environment=transport)

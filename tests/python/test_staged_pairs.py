"""Messages, and calls whose sizes each pair of ranks knows for itself, slice by slice on a device without a plugin: exact, alone and in
blocks, with any number of slices, and told when the two ends differ."""

import pytest
import torch
import torch.distributed as dist

import values
from plugins import run
from test_staged_calls import DEVICES, IN_SLICES, SLICE, check, staged
from test_staged_plugin import STAGING, WAYS

MOST = SLICE // 4  # float32 in a slice


def edges(most):
    """Sizes about where another slice begins."""
    return [0, 1, most - 1, most, most + 1, 2 * most, 2 * most + 1, 5 * most + 77]


def sent(rank, count, salt=0, dtype=torch.float32):
    return values.plain(rank + 10 * salt, count, dtype)


def messages(rank, size):
    """Round a ring: as calls, in either order, from any source."""
    after, before = (rank + 1) % size, (rank - 1) % size
    for salt, count in enumerate(edges(MOST)):
        outgoing, incoming = sent(rank, count, salt).to("sim"), torch.zeros(count, device="sim")
        works = [dist.isend(outgoing, after, tag=salt), dist.irecv(incoming, before, tag=salt)]
        for work in works[:: -1 if rank % 2 else 1]:
            work.wait()
        check(incoming, sent(before, count, salt), f"{count} elements round the ring")
        if size == 2:
            incoming.zero_()
            if rank == 0:
                dist.send(outgoing, 1)
                assert dist.recv(incoming) == 1
            else:
                assert dist.recv(incoming) == 0
                dist.send(outgoing, 0)
            check(incoming, sent(before, count, salt), f"{count} elements from any source")
    # From any source the next message goes to the receive that was made first, whatever it takes to begin it.
    counts = [5 * MOST, 3, 2 * MOST, 9]
    incoming = [torch.zeros(count, device="sim") for count in counts]
    receiving = [dist.irecv(tensor) for tensor in incoming]
    for salt, count in enumerate(counts):
        dist.send(sent(rank, count, salt).to("sim"), after)
    for salt, (work, tensor) in enumerate(zip(receiving, incoming)):
        work.wait()
        check(tensor, sent(before, counts[salt], salt), f"message {salt} from any source")
    for dtype in (torch.bfloat16, torch.int64, torch.complex64):
        incoming = torch.zeros(5 * MOST + 77, dtype=dtype, device="sim")
        work = dist.isend(sent(rank, len(incoming), dtype=dtype).to("sim"), after)
        dist.recv(incoming, before)
        work.wait()
        check(incoming, sent(before, len(incoming), dtype=dtype), f"a message of {dtype}")


def in_any_order(rank, size):
    """More messages at once than there are threads for, received in another order; strided ones; collectives between them."""
    counts = [2 * MOST + 7 * i for i in range(9)]
    wide = [torch.zeros(2, count, device="sim") for count in counts]
    incoming = [one.t()[:, 1] for one in wide]
    total = sent(rank, 3 * MOST).to("sim")
    other = 1 - rank
    receiving = [dist.irecv(tensor, other, tag=i) for i, tensor in enumerate(incoming)]
    reduced = dist.all_reduce(total, async_op=True)
    order = range(9) if rank else reversed(range(9))
    sending = [dist.isend(sent(rank, counts[i], i).to("sim"), other, tag=i) for i in order]
    reduced.wait()
    check(total, values.total([sent(r, 3 * MOST) for r in range(size)]), "all_reduce among messages")
    for i in reversed(range(9)):
        receiving[i].wait()
        check(incoming[i], sent(other, counts[i], i), f"message {i}")
        assert wide[i][0].eq(0).all()
    for work in sending:
        work.wait()


def blocks(rank, size):
    """Large and small calls of one coalescing block."""
    after, before = (rank + 1) % size, (rank - 1) % size
    counts = [3 * MOST + 1, 5, 2 * MOST, MOST - 1, 7 * MOST]
    outgoing = [sent(rank, count, i).to("sim") for i, count in enumerate(counts)]
    incoming = [torch.zeros(count, device="sim") for count in counts]
    operations = [dist.P2POp(dist.irecv, tensor, before) for tensor in incoming]
    operations += [dist.P2POp(dist.isend, tensor, after) for tensor in outgoing]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for i, tensor in enumerate(incoming):
        check(tensor, sent(before, counts[i], i), f"message {i} of a batch")
    tensors = [sent(rank, count, i).to("sim") for i, count in enumerate(counts)]
    with dist._coalescing_manager(device=torch.device("sim")):
        for tensor in tensors:
            dist.all_reduce(tensor)
    for i, tensor in enumerate(tensors):
        check(tensor, values.total([sent(r, counts[i], i) for r in range(size)]), f"all_reduce {i} of a block")
    tensors = [sent(rank, count, i, dtype).to("sim") for i, (count, dtype) in enumerate(MIXED)]
    gathered = [torch.zeros(size * len(tensor), dtype=tensor.dtype, device="sim") for tensor in tensors]
    with dist._coalescing_manager(device=torch.device("sim"), async_ops=True) as manager:
        for output, tensor in zip(gathered, tensors):
            dist.all_gather_into_tensor(output, tensor)
    manager.wait()
    for i, (count, dtype) in enumerate(MIXED):
        expected = torch.cat([sent(r, count, i, dtype) for r in range(size)])
        check(gathered[i], expected, f"all_gather of {dtype} in a block")


MIXED = [(3 * MOST, torch.float32), (2 * MOST + 8, torch.int64), (8, torch.uint8)]


def rooted(rank, size):
    for count in edges(MOST // size):
        for root in range(size):
            counts = [count + (r if count else 0) for r in range(size)]
            parts = [torch.zeros(n, device="sim") for n in counts] if rank == root else None
            dist.gather(sent(rank, counts[rank]).to("sim"), parts, dst=root)
            for r, part in enumerate(parts or []):
                check(part, sent(r, counts[r]), f"gather of {counts[r]} from {r}")
            parts = [sent(r, n, 2).to("sim") for r, n in enumerate(counts)] if rank == root else None
            output = torch.zeros(counts[rank], device="sim")
            dist.scatter(output, parts, src=root)
            check(output, sent(rank, counts[rank], 2), f"scatter of {counts[rank]}")


def rows(giver, taker, size):
    """How much one rank gives another in an exchange: nothing, little, or several slices."""
    return edges(MOST // size)[(giver * 3 + taker * 5 + 3) % 8]


def exchanges(rank, size):
    given = [rows(rank, r, size) for r in range(size)]
    taken = [rows(r, rank, size) for r in range(size)]
    pieces = [sent(rank, n, r).to("sim") for r, n in enumerate(given)]
    expected = [sent(r, n, rank) for r, n in enumerate(taken)]
    output = torch.zeros(sum(taken), device="sim")
    dist.all_to_all_single(output, torch.cat(pieces), taken, given)
    check(output, torch.cat(expected), "all_to_all_single with splits")
    wide = torch.zeros(sum(taken), 3, device="sim")
    dist.all_to_all_single(wide, torch.cat(pieces).unsqueeze(1).expand(-1, 3), taken, given)
    check(wide, torch.cat(expected).unsqueeze(1).expand(-1, 3), "all_to_all_single of rows")
    outputs = [torch.zeros(n, device="sim") for n in taken]
    dist.all_to_all(outputs, pieces)
    for r in range(size):
        check(outputs[r], expected[r], f"all_to_all from {r}")
    large = 3 * MOST
    tensor = sent(rank, size * large).to("sim")
    dist.all_to_all_single(tensor, tensor)
    mine_of = [sent(r, size * large)[rank * large : (rank + 1) * large] for r in range(size)]
    check(tensor, torch.cat(mine_of), "all_to_all_single in place")
    # One rank has nothing to cut and makes the whole call.
    given = [3 * MOST if rank == 0 and r == 1 else 4 for r in range(size)]
    taken = [3 * MOST if r == 0 and rank == 1 else 4 for r in range(size)]
    output = torch.zeros(sum(taken), device="sim")
    dist.all_to_all_single(output, torch.cat([sent(rank, n, r) for r, n in enumerate(given)]).to("sim"), taken, given)
    check(output, torch.cat([sent(r, n, rank) for r, n in enumerate(taken)]), "an exchange of which one pair has much")


def lists_of_all_sizes(rank, size):
    for first in edges(MOST // size):
        counts = [first + r * MOST // 2 for r in range(size)]
        outputs = [torch.zeros(n, device="sim") for n in counts]
        dist.all_gather(outputs, sent(rank, counts[rank]).to("sim"))
        for r, output in enumerate(outputs):
            check(output, sent(r, counts[r]), f"all_gather of {counts[r]} from {r}")
        output = torch.zeros(counts[rank], device="sim")
        dist.reduce_scatter(output, [sent(rank, n, r).to("sim") for r, n in enumerate(counts)])
        expected = values.total([sent(s, counts[rank], rank) for s in range(size)])
        check(output, expected, f"reduce_scatter of {counts[rank]}")


PAIRS = [messages, blocks, rooted, exchanges, lists_of_all_sizes]


def everything(rank, size):
    for case in PAIRS:
        case(rank, size)
    in_any_order(rank, size)


@pytest.mark.parametrize("kind", DEVICES)
def test_every_call_of_pairs_on(kind, sim):
    staged(everything, 2, environment=IN_SLICES | DEVICES[kind])


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.__name__)
def test_is_exact_on_three_ranks(case, sim):
    staged(case, 3)


@pytest.mark.parametrize("way", ["all", "mandatory entries"])
def test_is_exact_where_a_plugin_copies(way, sim, stripped):
    without, flaws, _ = WAYS[way]
    run(everything, 2, stripped, f"{STAGING}, {without}", environment=IN_SLICES | flaws)

"""What the tests of stream order share: a gate that holds a stream up, and every call of c10d as a value."""

import threading
from dataclasses import dataclass
from typing import Callable

import torch
import torch.distributed as dist

import values
from ranks import make_store, run_ranks

GARBAGE = -777.0
PATIENCE = 20  # seconds after which a gate opens by itself, so that a call which waits for it fails a test and hangs nothing


class Gate:
    """Work of a stream that is not over before open(): whatever is queued behind it has certainly not run."""

    def __init__(self, stream=None):
        self._opened = threading.Event()
        self.forced = False
        torch.sim.launch_host_func(stream or torch.sim.current_stream(), self._hold)

    def _hold(self):
        self.forced = not self._opened.wait(PATIENCE)

    def require_closed(self, what):
        assert not self.forced and not self._opened.is_set(), f"{what} waited for work that was queued on the device"

    def open(self):
        self._opened.set()

    def open_soon(self):
        """For a call that waits on the host: from a thread, a moment later."""
        threading.Timer(0.02, self.open).start()

    @property
    def is_open(self):
        return self._opened.is_set()


def open_in_another_order(gates, tensors, rank, size):
    """Opens all gates, which hold up sums of `rank + i` on stream `i`, not in the order of their calls; what comes out is right."""
    for i in [(rank + 2 * k) % len(tensors) for k in range(len(tensors))]:
        gates[i].open()
    torch.sim.synchronize()
    for i, tensor in enumerate(tensors):
        assert values.equal(tensor, torch.full_like(tensor, sum(r + i for r in range(size)), device="cpu"))


@dataclass(frozen=True)
class Call:
    """A call, what each of its tensors holds before and, if anything is promised, after it."""

    name: str
    tensors: Callable  # (rank, size, count) -> [(before, after or None)], on the host
    issue: Callable  # (tensors, rank, size, asynchronous, group) -> the works
    host_waits: bool = False  # it is not over, in the user's sense, before the host knows its outcome

    def on_device(self, rank, size, count, device):
        """The call's tensors with garbage in them, and the values that produce() copies there later."""
        sources = [before.to(device) for before, _ in self.tensors(rank, size, count)]
        tensors = [torch.empty_like(source).fill_(GARBAGE) for source in sources]
        torch.sim.synchronize(device)
        return tensors, sources

    def check(self, got, rank, size, count):
        for i, (tensor, (_, after)) in enumerate(zip(got, self.tensors(rank, size, count))):
            assert after is None or values.equal(tensor, after), f"{self.name}: tensor {i} is {tensor}, not {after}"


def mine(rank, count, start=0):
    return values.plain(rank, count, torch.float32, start)


def empty(count):
    return torch.full((count,), GARBAGE)


def everyone(size, count):
    return [mine(rank, count) for rank in range(size)]


def sum_of(size, count):
    return values.total(everyone(size, count))


def copy_all(targets, sources):
    """Queued; an operator of the fall-back would wait for the stream instead."""
    for target, source in zip(targets, sources):
        target.copy_(source)


CALLS = []


def call(tensors, **options):
    def add(issue):
        CALLS.append(Call(issue.__name__, tensors, issue, **options))
        return issue

    return add


def works(*returned):
    return [work for work in returned if work is not None]


@call(lambda rank, size, count: [(mine(rank, count), sum_of(size, count))])
def all_reduce(tensors, rank, size, asynchronous, group):
    return works(dist.all_reduce(tensors[0], group=group, async_op=asynchronous))


@call(lambda rank, size, count: [(mine(rank, 6 * count).view(-1, 6), None)])
def all_reduce_of_a_view(tensors, rank, size, asynchronous, group):
    """Strided: through a temporary and back. The reader compares it with a copy of its own, so nothing is said here."""
    return works(dist.all_reduce(tensors[0].t()[::2], group=group, async_op=asynchronous))


@call(lambda rank, size, count: [(mine(rank, count + i), sum_of(size, count + i)) for i in range(3)])
def all_reduce_coalesced(tensors, rank, size, asynchronous, group):
    with dist._coalescing_manager(group=group, device=tensors[0].device, async_ops=asynchronous) as block:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return works(block) if asynchronous else []


@call(lambda rank, size, count: [(mine(rank, count), mine(size - 1, count))])
def broadcast(tensors, rank, size, asynchronous, group):
    return works(dist.broadcast(tensors[0], size - 1, group=group, async_op=asynchronous))


@call(lambda rank, size, count: [(mine(rank, count), sum_of(size, count) if rank == 0 else None)])
def reduce(tensors, rank, size, asynchronous, group):
    return works(dist.reduce(tensors[0], 0, group=group, async_op=asynchronous))


@call(lambda rank, size, count: [(mine(rank, count),) * 2] + [(empty(count), mine(r, count)) for r in range(size)])
def all_gather(tensors, rank, size, asynchronous, group):
    return works(dist.all_gather(tensors[1:], tensors[0], group=group, async_op=asynchronous))


@call(
    lambda rank, size, count: [(mine(rank, count + 5 * rank),) * 2]
    + [(empty(count + 5 * r), mine(r, count + 5 * r)) for r in range(size)]
)
def all_gather_of_unequal(tensors, rank, size, asynchronous, group):
    return works(dist.all_gather(tensors[1:], tensors[0], group=group, async_op=asynchronous))


@call(lambda rank, size, count: [(mine(rank, count),) * 2, (empty(size * count), torch.cat(everyone(size, count)))])
def all_gather_into_tensor(tensors, rank, size, asynchronous, group):
    return works(dist.all_gather_into_tensor(tensors[1], tensors[0], group=group, async_op=asynchronous))


@call(
    lambda rank, size, count: [
        pair
        for n in (count, count + 3)
        for pair in [(mine(rank, n),) * 2, (empty(size * n), torch.cat(everyone(size, n)))]
    ]
)
def all_gather_into_tensor_coalesced(tensors, rank, size, asynchronous, group):
    with dist._coalescing_manager(group=group, device=tensors[0].device, async_ops=asynchronous) as block:
        for i in (0, 2):
            dist.all_gather_into_tensor(tensors[i + 1], tensors[i], group=group)
    return works(block) if asynchronous else []


@call(
    lambda rank, size, count: [(mine(rank, count),) * 2]
    + [(empty(count), mine(r, count)) for r in range(size if rank == size - 1 else 0)]
)
def gather(tensors, rank, size, asynchronous, group):
    return works(dist.gather(tensors[0], tensors[1:] or None, size - 1, group=group, async_op=asynchronous))


@call(
    lambda rank, size, count: [(empty(count), mine(rank + 10, count))]
    + [(mine(r + 10, count),) * 2 for r in range(size if rank == 1 else 0)]
)
def scatter(tensors, rank, size, asynchronous, group):
    return works(dist.scatter(tensors[0], tensors[1:] or None, 1, group=group, async_op=asynchronous))


@call(
    lambda rank, size, count: [(empty(count), sum_of(size, (rank + 1) * count)[-count:])]
    + [(mine(rank, count, r * count),) * 2 for r in range(size)]
)
def reduce_scatter(tensors, rank, size, asynchronous, group):
    return works(dist.reduce_scatter(tensors[0], tensors[1:], group=group, async_op=asynchronous))


@call(
    lambda rank, size, count: [
        (empty(count), sum_of(size, (rank + 1) * count)[-count:]),
        (mine(rank, size * count),) * 2,
    ]
)
def reduce_scatter_tensor(tensors, rank, size, asynchronous, group):
    return works(dist.reduce_scatter_tensor(tensors[0], tensors[1], group=group, async_op=asynchronous))


@call(
    lambda rank, size, count: [
        pair
        for n in (count, count + 1)
        for pair in [(empty(n), sum_of(size, (rank + 1) * n)[-n:]), (mine(rank, size * n),) * 2]
    ]
)
def reduce_scatter_tensor_coalesced(tensors, rank, size, asynchronous, group):
    with dist._coalescing_manager(group=group, device=tensors[0].device, async_ops=asynchronous) as block:
        for i in (0, 2):
            dist.reduce_scatter_tensor(tensors[i], tensors[i + 1], group=group)
    return works(block) if asynchronous else []


@call(
    lambda rank, size, count: [
        (empty(size * count), torch.cat([mine(r, count, rank * count) for r in range(size)])),
        (mine(rank, size * count),) * 2,
    ]
)
def all_to_all_single(tensors, rank, size, asynchronous, group):
    return works(dist.all_to_all_single(tensors[0], tensors[1], group=group, async_op=asynchronous))


# Rank r gives `count + r + p` numbers to rank p, all of them r.
@call(
    lambda rank, size, count: [
        pair
        for pair in (
            (
                empty(sum(count + rank + r for r in range(size))),
                torch.cat([torch.full((count + rank + r,), float(r)) for r in range(size)]),
            ),
            (torch.full((sum(count + rank + p for p in range(size)),), float(rank)),) * 2,
        )
    ]
)
def all_to_all_with_splits(tensors, rank, size, asynchronous, group):
    splits = [(tensors[1].numel() - (size * rank + size * (size - 1) // 2)) // size + rank + p for p in range(size)]
    return works(
        dist.all_to_all_single(tensors[0], tensors[1], splits, splits, group=group, async_op=asynchronous)
    )


@call(
    lambda rank, size, count: [(empty(count + rank), torch.full((count + rank,), 10.0 * r + rank)) for r in range(size)]
    + [(torch.full((count + p,), 10.0 * rank + p),) * 2 for p in range(size)]
)
def all_to_all(tensors, rank, size, asynchronous, group):
    return works(dist.all_to_all(tensors[:size], tensors[size:], group=group, async_op=asynchronous))


def exchanged(rank, size, count):
    return [(mine(rank, count),) * 2, (empty(count), mine((rank - 1) % size, count))]


@call(exchanged)
def send_and_receive(tensors, rank, size, asynchronous, group):
    to, source = (rank + 1) % size, (rank - 1) % size
    if asynchronous:
        return [dist.irecv(tensors[1], source, group=group), dist.isend(tensors[0], to, group=group)]
    if rank == 0:
        dist.send(tensors[0], to, group=group)
        dist.recv(tensors[1], source, group=group)
    else:
        dist.recv(tensors[1], source, group=group)
        dist.send(tensors[0], to, group=group)
    return []


@call(exchanged)
def messages_in_a_batch(tensors, rank, size, asynchronous, group):
    batch = [
        dist.P2POp(dist.isend, tensors[0], (rank + 1) % size, group),
        dist.P2POp(dist.irecv, tensors[1], (rank - 1) % size, group),
    ]
    requests = dist.batch_isend_irecv(batch)
    if asynchronous:
        return requests
    for request in requests:
        request.wait()
    return []


def on_streams(function, size, *arguments, plugin=True, **options):
    """`function(rank, size, *arguments)` on every rank, in a group. Without a plugin, sim is served through torch alone."""
    return run_ranks(_member, size, function, plugin, arguments, group=False, **options)


def _member(rank, size, listener, function, plugin, arguments):
    if not plugin:
        from hccl_like import _plugins

        _plugins.register = lambda extension: None
    dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size)
    result = function(rank, size, *arguments)
    dist.destroy_process_group()
    return result

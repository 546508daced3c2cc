"""Every call of c10d is ordered with the caller's streams, and none makes the host wait for the device.

A gate (streams.py) holds a stream up until the test opens it. What is asserted while it is closed has certainly not waited
for the work behind it, and a call that read its inputs, or let its outputs be read, too early finds garbage there.
"""

import pytest
import torch
import torch.distributed as dist

from streams import CALLS, GARBAGE, Gate, copy_all, on_streams

SMALL = 1003  # the device's copies of it run at once where nothing is queued
LARGE = 100_003  # always by a stream's thread


def ready(call, rank, size, device, count):
    """The call's tensors, what to copy into them late, and room for what a reader copies out of them."""
    tensors, sources = call.on_device(rank, size, count, device)
    return tensors, sources, [torch.empty_like(tensor) for tensor in tensors]


def late_input_read_elsewhere(rank, size, call, device, count):
    """Issued on one stream behind work under way, waited for and read on another; nothing of it blocks."""
    tensors, sources, copies = ready(call, rank, size, device, count)
    maker, reader = torch.sim.Stream(device), torch.sim.Stream(device)
    with torch.sim.stream(maker):
        gate = Gate()
        copy_all(tensors, sources)
        works = call.issue(tensors, rank, size, True, dist.group.WORLD)
        gate.require_closed(f"issuing {call.name}")
    with torch.sim.stream(reader):
        for work in works:
            work.wait()
        copy_all(copies, tensors)
        gate.require_closed(f"wait() of {call.name}")
    assert not reader.query(), f"{call.name}: what waits for it does not wait for its inputs"
    gate.open()
    reader.synchronize()
    call.check(copies, rank, size, count)


def synchronous(rank, size, call, device, count):
    """The current stream is ordered behind a synchronous call, the host is not."""
    tensors, sources, copies = ready(call, rank, size, device, count)
    stream = torch.sim.Stream(device)
    with torch.sim.stream(stream):
        gate = Gate()
        copy_all(tensors, sources)
        call.issue(tensors, rank, size, False, dist.group.WORLD)
        copy_all(copies, tensors)
        gate.require_closed(f"the synchronous {call.name}")
        gate.open()
        stream.synchronize()
    call.check(copies, rank, size, count)


def given_up_after_wait(rank, size, call, device, count, synchronously=False):
    """wait() lets go of the tensors: the stream that waits may use their memory for something else at once, behind the call.
    The memory does not stay taken until the device gets there, however far ahead the host runs."""
    owner, maker = torch.sim.Stream(device), torch.sim.Stream(device)
    if synchronously:
        maker = owner
    with torch.sim.stream(owner):
        tensors, sources, copies = ready(call, rank, size, device, count)
    sizes = [tensor.numel() for tensor in tensors]
    size_in_bytes = sum(tensor.nbytes for tensor in tensors)
    with torch.sim.stream(maker):
        gate = Gate()
        copy_all(tensors, sources)
        works = call.issue(tensors, rank, size, not synchronously, dist.group.WORLD)
    with torch.sim.stream(owner):
        for work in works:
            work.wait()
        copy_all(copies, tensors)
        taken = torch.sim.memory_allocated(device)
        work = works = tensors = None
        given_back = taken - torch.sim.memory_allocated(device)
        assert given_back >= size_in_bytes, f"{call.name} keeps memory that nobody needs"
        others = [torch.full((n,), GARBAGE, device=device) for n in sizes for _ in range(2)]
    gate.require_closed(f"{call.name} and what came after it")
    gate.open()
    torch.sim.synchronize(device)
    call.check(copies, rank, size, count)
    for other in others:
        assert other.eq(GARBAGE).all(), f"{call.name} writes to memory that is another tensor's"


def given_up_after_a_synchronous_call(rank, size, call, device, count):
    given_up_after_wait(rank, size, call, device, count, synchronously=True)


def never_waited_for(rank, size, call, device, count):
    """A work that is dropped without wait() still runs, in memory that stays its own.

    The tensors come from a stream that is idle, so memory given back too early is handed out again at once, and the
    garbage that fills it is there long before the call runs.
    """
    allocator = torch.sim.Stream(device)
    with torch.sim.stream(allocator):
        tensors, sources, _ = ready(call, rank, size, device, count)
    sizes = [tensor.numel() for tensor in tensors]
    gate = Gate(torch.sim.current_stream(device))
    copy_all(tensors, sources)
    call.issue(tensors, rank, size, True, dist.group.WORLD)
    del tensors
    with torch.sim.stream(allocator):
        others = [torch.full((n,), GARBAGE, device=device) for n in sizes for _ in range(2)]
    gate.require_closed(f"{call.name} and what came after it")
    gate.open()
    # The next call of the group lets go of what was kept.
    dist.all_reduce(torch.zeros(1, device=device))
    torch.sim.synchronize(device)
    for other in others:
        assert other.eq(GARBAGE).all(), f"{call.name} writes to memory that is another tensor's"


def futures(rank, size, call, device, count):
    """The Future is done at once; callbacks run on streams of their own, behind the call; so does who waits for those."""
    tensors, sources, copies = ready(call, rank, size, device, count)
    maker, reader = torch.sim.Stream(device), torch.sim.Stream(device)
    streams = []
    with torch.sim.stream(maker):
        gate = Gate()
        copy_all(tensors, sources)
        works = call.issue(tensors, rank, size, True, dist.group.WORLD)

    first, *others = [getattr(work, "works", [work])[0].get_future() for work in works]

    def read(_):
        streams.append(torch.sim.current_stream(device).stream_id)
        for other in others:  # collect_all() would forget the devices
            other.wait()
        copy_all(copies, tensors)
        return copies  # a Future orders those who wait for it behind what made its value, and nothing else

    def pass_on(done):
        streams.append(torch.sim.current_stream(device).stream_id)
        return done.value()

    then = first.then(read).then(pass_on)
    assert then.done(), call.name
    gate.require_closed(f"the Future of {call.name}")
    assert 0 not in streams and maker.stream_id not in streams, "callbacks run on streams of their own"
    result = [torch.empty_like(copy) for copy in copies]
    with torch.sim.stream(reader):
        then.wait()
        copy_all(result, copies)
        gate.require_closed(f"waiting for the Future of {call.name}")
    gate.open()
    reader.synchronize()
    call.check(result, rank, size, count)


def every_call(rank, size, scenario, count, index):
    device = torch.device("sim", index)
    for call in CALLS:
        scenario(rank, size, call, device, count)


SCENARIOS = [late_input_read_elsewhere, synchronous, given_up_after_wait, given_up_after_a_synchronous_call,
             never_waited_for, futures]  # fmt: skip
QUICK = [(scenario, LARGE if scenario is synchronous else SMALL) for scenario in SCENARIOS]


@pytest.mark.parametrize(
    "scenario, count, size",
    [
        pytest.param(scenario, count, size, marks=[] if size == 2 and (scenario, count) in QUICK else pytest.mark.slow,
                     id=f"{scenario.__name__}, {count} numbers, {size} ranks")
        for scenario in SCENARIOS for count in (SMALL, LARGE) for size in (2, 3)
    ],
)  # fmt: skip
def test_every_call(scenario, count, size, sim):
    # Not the current device: nothing may depend on which that is.
    on_streams(every_call, size, scenario, count, 1)


def on_a_device_without_plugin(rank, size, call, device, count):
    """The call waits, on the host, for the work queued before it; wait() and the Future for the result."""
    tensors, sources, copies = ready(call, rank, size, device, count)
    maker, reader = torch.sim.Stream(device), torch.sim.Stream(device)
    with torch.sim.stream(maker):
        gate = Gate()
        copy_all(tensors, sources)
        gate.open_soon()
        works = call.issue(tensors, rank, size, True, dist.group.WORLD)
        assert gate.is_open, f"{call.name} was issued before its inputs were there"
    with torch.sim.stream(reader):
        for work in works:
            work.wait()
        copy_all(copies, tensors)
        reader.synchronize()
    call.check(copies, rank, size, count)

    # Synchronous, and the tensors given up at once.
    tensors, sources, copies = ready(call, rank, size, device, count)
    sizes = [tensor.numel() for tensor in tensors]
    with torch.sim.stream(maker):
        gate = Gate()
        copy_all(tensors, sources)
        gate.open_soon()
        call.issue(tensors, rank, size, False, dist.group.WORLD)
        copy_all(copies, tensors)
        maker.synchronize()
    del tensors
    others = [torch.full((n,), GARBAGE, device=device) for n in sizes for _ in range(2)]
    call.check(copies, rank, size, count)
    tensors, sources, _ = ready(call, rank, size, device, count)
    copy_all(tensors, sources)
    call.issue(tensors, rank, size, True, dist.group.WORLD)
    del tensors
    others += [torch.full((n,), GARBAGE, device=device) for n in sizes for _ in range(2)]
    dist.barrier()
    for other in others:
        assert other.eq(GARBAGE).all(), f"{call.name} writes to memory that is another tensor's"


def future_without_plugin(rank, size, call, device, count):
    """What a callback queues on its stream is ordered before what follows a wait for it, on whichever stream."""
    tensors, sources, copies = ready(call, rank, size, device, count)
    reader = torch.sim.Stream(device)
    copy_all(tensors, sources)
    first, *others = [getattr(work, "works", [work])[0] for work in call.issue(tensors, rank, size, True, dist.group.WORLD)]
    gates = []

    def read(_):
        for other in others:
            other.wait()
        gates.append(Gate(torch.sim.current_stream(device)))
        copy_all(copies, tensors)
        return copies

    then = first.get_future().then(read)
    result = [torch.empty_like(copy) for copy in copies]
    with torch.sim.stream(reader):
        then.wait()
        copy_all(result, copies)
    gates[0].require_closed(f"waiting for a callback on the Future of {call.name}")
    gates[0].open()
    reader.synchronize()
    call.check(result, rank, size, count)


@pytest.mark.parametrize("scenario", [on_a_device_without_plugin, future_without_plugin],
                         ids=lambda scenario: scenario.__name__)  # fmt: skip
@pytest.mark.parametrize("count", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_every_call_without_a_plugin(scenario, count, sim):
    on_streams(every_call, 2, scenario, count, 1, plugin=False)

"""Stream order with several devices, threads, groups and kinds of streams, and what a program that forgets it sees."""

import threading

import pytest
import torch
import torch._dynamo  # hooks import it, which takes seconds: once here, not in every rank
import torch.distributed as dist

import values
from ranks import run_ranks
from streams import GARBAGE, Gate, mine, open_in_another_order, sum_of

COUNT = 1003


def two_devices(rank, size):
    """One group, tensors of two devices: calls on one do not wait for the other, though they share the group's order."""
    first, second = torch.device("sim", 2), torch.device("sim", 3)
    held_up = torch.zeros(COUNT, device=first)
    late = mine(rank, COUNT).to(first)
    free = torch.zeros(COUNT, device=second)
    torch.sim.synchronize(first)
    gate = Gate(torch.sim.current_stream(first))
    held_up.copy_(late)
    free.copy_(mine(rank, COUNT))
    works = [dist.all_reduce(held_up, async_op=True), dist.all_reduce(free, async_op=True)]
    works[1].wait()
    assert values.equal(free, sum_of(size, COUNT))
    gate.require_closed("a call on another device")
    assert torch.sim.current_device() == 0, "issuing a call leaves the current device alone"
    gate.open()
    works[0].wait()
    assert values.equal(held_up, sum_of(size, COUNT))
    for device in (first, second):
        kept = torch.sim.current_stream(device)
        assert kept.device_index == device.index and kept.stream_id == 0, "and the current streams"


def a_thread_each(rank, size):
    """Two threads, each with its own group, device and stream, at the same time."""
    groups = [dist.new_group(list(range(size))) for _ in range(2)]
    errors = []

    def work(number):
        try:
            device = torch.device("sim", number)
            torch.sim.set_device(device)
            with torch.sim.stream(torch.sim.Stream(device)):
                for step in range(30):
                    tensor = torch.full((COUNT + step,), float(rank + number + step), device=device)
                    if step % 3:
                        dist.all_reduce(tensor, group=groups[number])
                    else:
                        dist.all_reduce(tensor, group=groups[number], async_op=True).wait()
                    expected = float(sum(r + number + step for r in range(size)))
                    assert tensor.eq(expected).all(), f"thread {number}, step {step}"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors


def groups_and_streams_crossed(rank, size):
    """Three groups, three streams, each held up on another rank: no order between them is needed, so none is waited for."""
    groups = [None] + [dist.new_group(list(range(size))) for _ in range(2)]
    streams = [torch.sim.Stream() for _ in groups]
    tensors = [torch.zeros(COUNT, device="sim") for _ in groups]
    torch.sim.synchronize()
    gates = {}
    for i in [(rank + k) % 3 for k in range(3)]:
        with torch.sim.stream(streams[i]):
            gates[i] = Gate()
            tensors[i].fill_(rank + i)
            dist.all_reduce(tensors[i], group=groups[i])  # synchronous: on the stream itself
            gates[i].require_closed("a synchronous call")
    open_in_another_order(gates, tensors, rank, size)


def streams_of_every_kind(rank, size):
    """torch.Stream, torch.sim.Stream, with priority, of torch.accelerator: a stream is a stream."""
    makers = [
        lambda: torch.Stream(device="sim:0"),
        lambda: torch.Stream(device="sim:0", priority=-1),
        lambda: torch.sim.Stream(priority=-1),
        lambda: torch.sim.default_stream(),
        lambda: torch.accelerator.current_stream(),
    ]
    tensor, copy = torch.zeros(COUNT, device="sim"), torch.zeros(COUNT, device="sim")
    for make_issuer in makers:
        for make_reader in makers:
            issuer, reader = make_issuer(), make_reader()
            tensor.fill_(GARBAGE)
            torch.sim.synchronize()
            with issuer:
                gate = Gate(issuer)
                tensor.fill_(rank + 1)
                work = dist.all_reduce(tensor, async_op=True)
            with reader:
                work.wait()
                copy.copy_(tensor)
            gate.require_closed("issue and wait()")
            gate.open()
            reader.synchronize()
            assert values.equal(copy, torch.full((COUNT,), size * (size + 1) / 2))
    torch.accelerator.synchronize()


def crossed_streams_of_one_group(rank, size):
    """Two synchronous calls of one group on two streams; each rank's device gets to another one first."""
    streams = [torch.sim.Stream(), torch.sim.Stream()]
    tensors = [torch.zeros(COUNT, device="sim") for _ in streams]
    torch.sim.synchronize()
    gates = []
    for i, stream in enumerate(streams):
        with torch.sim.stream(stream):
            gates.append(Gate())
            tensors[i].fill_(rank + i)
            dist.all_reduce(tensors[i])
    gates[rank % 2].open()
    with torch.sim.stream(streams[1 - rank % 2]):
        gates[1 - rank % 2].require_closed("the other stream")
    gates[1 - rank % 2].open()
    torch.sim.synchronize()
    for i, tensor in enumerate(tensors):
        assert values.equal(tensor, torch.full((COUNT,), float(sum(r + i for r in range(size)))))


def a_callback_on_another_device(rank, size):
    """A callback runs with the device current that was current when the Future was made, on a stream of the call's device."""
    device = torch.device("sim", 4)
    tensor = torch.full((COUNT,), float(rank), device=device)
    seen = []

    def look(done):
        seen.append((torch.sim.current_device(), torch.sim.current_stream(device).stream_id))
        return done.value()[0] + 1

    result = dist.all_reduce(tensor, async_op=True).get_future().then(look).wait()
    assert values.equal(result, torch.full((COUNT,), sum(range(size)) + 1.0))
    assert seen[0][0] == 4 and seen[0][1] != 0
    assert torch.sim.current_device() == 0


CASES = [two_devices, a_thread_each, groups_and_streams_crossed, streams_of_every_kind, crossed_streams_of_one_group,
         a_callback_on_another_device]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_order_is_kept(case, sim):
    run_ranks(case, 2)


def no_wait(rank, size):
    tensor, copy = torch.zeros(COUNT, device="sim"), torch.zeros(COUNT, device="sim")
    reader = torch.sim.Stream()
    torch.sim.synchronize()
    gate = Gate()
    tensor.fill_(rank + 1)
    work = dist.all_reduce(tensor, async_op=True)
    with torch.sim.stream(reader):
        copy.copy_(tensor)  # work.wait() is missing
        reader.synchronize()
    gate.open()
    work.wait()
    torch.sim.synchronize()
    assert copy.eq(0).all(), "who does not wait reads what was there before"
    assert values.equal(tensor, torch.full((COUNT,), size * (size + 1) / 2))


def input_from_another_stream(rank, size):
    tensor = torch.zeros(COUNT, device="sim")
    maker = torch.sim.Stream()
    torch.sim.synchronize()
    with torch.sim.stream(maker):
        gate = Gate()
        tensor.fill_(rank + 1)
    result = tensor.clone()
    dist.all_reduce(result)  # current_stream().wait_stream(maker) is missing
    torch.sim.current_stream().synchronize()
    assert result.eq(0).all(), "who does not order his streams sends what was there before"
    gate.open()
    torch.sim.synchronize()


def overwritten_too_early(rank, size):
    given, gathered = torch.full((COUNT,), 1.0, device="sim"), torch.zeros(size * COUNT, device="sim")
    other = torch.sim.Stream()
    torch.sim.synchronize()
    gate = Gate()
    work = dist.all_gather_into_tensor(gathered, given, async_op=True)
    with torch.sim.stream(other):
        given.fill_(GARBAGE)  # before wait()
        other.synchronize()
    gate.open()
    work.wait()
    assert gathered.eq(GARBAGE).all(), "who overwrites an input before the call is over sends what he wrote"


@pytest.mark.parametrize(
    "case", [no_wait, input_from_another_stream, overwritten_too_early], ids=lambda case: case.__name__
)
def test_a_missing_synchronisation_shows(case, sim):
    """So the tests of order can fail: the device really runs behind the host."""
    run_ranks(case, 2)


def chained_hook(rank, size, device, hook_name):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(3)
    model = torch.nn.Sequential(*[torch.nn.Linear(40, 40) for _ in range(4)]).to(device)
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.005)  # several buckets: hooks overlap

    def chain(_, bucket):
        """Two calls, the second on what a callback made of the first one's result."""
        def halve_and_gather(done):
            half = done.value()[0].div_(2 * size)
            parts = [torch.empty_like(half) for _ in range(size)]
            dist.all_gather(parts, half)
            return torch.stack(parts).sum(0)

        def scale(done):
            return done.value() * 2 / size

        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(halve_and_gather).then(scale)

    hooks = {
        "plain": (None, default_hooks.allreduce_hook),
        "chain": (None, chain),
        "compressed": (None, default_hooks.fp16_compress_hook),
        "wrapped": (powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2),
                    default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
        "powersgd": (powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook),
        "localsgd": (post_localSGD_hook.PostLocalSGDState(None, None, 2), post_localSGD_hook.post_localSGD_hook),
    }  # fmt: skip
    if hook_name == "localsgd":
        hooks[hook_name][0].subgroup = dist.new_group([rank for rank in range(size)])
    parallel.register_comm_hook(*hooks[hook_name])
    for step in range(4):
        torch.manual_seed(100 * step + rank)
        parallel.zero_grad()
        if device == "sim":
            torch.sim._sleep(5)
        parallel(torch.randn(8, 40).to(device)).square().mean().backward()
    return torch.cat([parameter.grad.flatten().cpu() for parameter in model.parameters()]).tolist()


# On host tensors callbacks run when their call is over, which is not the same moment on all ranks: hooks that issue calls
# from there are for devices that keep stream order (docs/streams.md).
@pytest.mark.parametrize(
    "hook_name, device",
    [(name, "sim") for name in ("chain", "powersgd", "wrapped", "localsgd", "compressed")]
    + [(name, "cpu") for name in ("localsgd", "compressed")],
)
def test_hooks_of_many_buckets_agree(hook_name, device):
    if device == "sim" and not hasattr(torch, "sim"):
        pytest.skip("the simulated accelerator is not installed: pip install ./simulator")
    results = run_ranks(chained_hook, 2, device, hook_name)
    assert results[0] == results[1]
    if hook_name == "chain":
        plain = run_ranks(chained_hook, 2, device, "plain")
        torch.testing.assert_close(torch.tensor(results[0]), torch.tensor(plain[0]), rtol=1e-5, atol=1e-7)

"""Options(compression=...): fewer bytes between hosts, within a bound, with the same bits on all ranks."""

import pytest
import torch
import torch.distributed as dist

import hccl_like
from hccl_like import _extension
from ranks import run_ranks

ERRORS = {"mx8": 1 / 127, "mx4": 1 / 5, "bf16": 1 / 256}  # by compression: the largest error in relation to the largest number of its block
LAYOUTS = {"a host each": [0, 1], "two each": [0, 0, 1, 1], "in turns": [0, 1, 0]}


def noise(rank, count):
    """Numbers whose magnitudes differ from block to block."""
    numbers = torch.randn(count, generator=torch.Generator().manual_seed(rank))
    return numbers * torch.exp2((torch.arange(count) // 100 % 20 - 10).float())


def asked(compression):
    return dist.new_group(pg_options=hccl_like.Options(compression=compression))


def largest(values):
    """Of each element's block of 32, the largest magnitude."""
    blocks = torch.nn.functional.pad(values.abs(), (0, -len(values) % 32)).view(-1, 32)
    return blocks.amax(1).repeat_interleave(32)[: len(values)]


def bound(given, layout, compression, encodes_result):
    """The exact sum in float64, and how far a result may lie from it (docs/compression.md)."""
    by_host = [sum(each.double() for each, host in zip(given, layout) if host == which) for which in set(layout)]
    total = sum(by_host)
    error = ERRORS[compression] * sum(largest(each) for each in by_host)
    if encodes_result:
        error = error + ERRORS[compression] * (largest(total) + error)
    return total, error + 1e-6 * sum(each.double().abs() for each in given)


def check(found, given, layout, compression, encodes_result=True):
    total, error = bound(given, layout, compression, encodes_result)
    off = (found.cpu().double() - total).abs()
    assert (off <= error).all(), f"{compression}: {(off - error).max()} above the bound"
    assert off.max() > 0, f"{compression}: nothing was compressed"


def same_on_all_ranks(tensor):
    bits = tensor.cpu().view(torch.int32)
    everyones = [torch.empty_like(bits) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, bits)
    return all(torch.equal(bits, other) for other in everyones)


COUNT = 100_003


def every_call(rank, size, device, layout, compressions):
    for compression in compressions:
        group = asked(compression)
        given = [noise(other, COUNT) for other in range(size)]
        mine = given[rank].to(device)

        summed = mine.clone()
        dist.all_reduce(summed, group=group)
        check(summed, given, layout, compression)
        assert same_on_all_ranks(summed)

        later = mine.clone()
        dist.all_reduce(later, group=group, async_op=True).wait()
        assert torch.equal(later, summed)

        mean = mine.clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG, group=group)
        torch.testing.assert_close(mean, summed / size)

        lists = [mine[:50_001].clone(), mine[50_001:60_000].clone().view(3, 3333), mine[60_000:].clone()]
        with dist._coalescing_manager(group):
            for one in lists:
                dist.all_reduce(one, group=group)
        for one, begin in zip(lists, (0, 50_001, 60_000)):
            part = [each[begin : begin + one.numel()] for each in given]
            if one.numel() * 4 >= (64 << 10) * max(map(layout.count, layout)):
                check(one.reshape(-1), part, layout, compression)

        parts = list(torch.tensor_split(mine, size))
        out = torch.empty_like(parts[rank])
        dist.reduce_scatter(out, parts, group=group)
        theirs = [torch.tensor_split(each, size)[rank] for each in given]
        check(out, theirs, layout, compression, encodes_result=False)

        gathered = [torch.empty(40_000 + other, device=device) for other in range(size)]
        dist.all_gather(gathered, mine[: 40_000 + rank], group=group)
        for other, one in enumerate(gathered):
            wanted = given[other][: 40_000 + other].clone()
            _extension.load()._round_to_compression(wanted, compression)
            assert torch.equal(one.cpu(), wanted)

        flat = torch.empty(size * 32_000, device=device)
        dist.all_gather_into_tensor(flat, mine[:32_000], group=group)
        assert same_on_all_ranks(flat)
        assert not torch.equal(flat[rank * 32_000 : (rank + 1) * 32_000], mine[:32_000])


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_calls_are_within_the_bound_and_alike_on_all_ranks(layout, make_hosts):
    run_ranks(every_call, len(layout), "cpu", layout, list(ERRORS), hosts=make_hosts(max(layout) + 1), layout=layout)


STAGED = {"TORCH_SIM_DISCRETE": "1"}
DEVICES = [
    pytest.param({}, [0, 1], id="mapped"),
    pytest.param(STAGED, [0, 1], id="staged"),
    pytest.param(STAGED, [0, 0, 1, 1], id="two each"),  # which are in phases otherwise
]


@pytest.mark.parametrize("environment, layout", DEVICES)
def test_calls_on_devices_are_compressed_too(environment, layout, sim, make_hosts):
    run_ranks(every_call, len(layout), sim, layout, ["mx8"], hosts=make_hosts(2), layout=layout, environment=environment)


def wire_bytes(rank, size):
    """Sent by the interface of this host, for each compression and call of 8 MiB."""

    def sent():
        dist.barrier()
        with open("/proc/net/dev") as devices:
            count = int(devices.read().partition("eth0:")[2].split()[8])
        dist.barrier()  # before the other rank of this host sends more
        return count

    counted = {}
    floats = torch.randn(2 << 20)
    for compression in ("none", "mx8", "mx4", "bf16"):
        group = asked(compression)
        out, all_of_them = torch.empty(len(floats) // size), torch.empty(len(floats))
        calls = {
            "all_reduce": lambda: dist.all_reduce(floats.clone(), group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(out, floats, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(all_of_them, floats[: len(floats) // size], group=group),
        }
        for name, call in calls.items():
            before = sent()
            call()
            counted[compression, name] = sent() - before
    return counted


@pytest.mark.parametrize("layout", [[0, 1], [0, 0, 1, 1]], ids=["a host each", "two each"])
def test_a_compression_takes_its_share_of_the_bytes_on_the_wire(layout, make_hosts):
    for counted in run_ranks(wire_bytes, len(layout), hosts=make_hosts(2), layout=layout):
        for name in ("all_reduce", "reduce_scatter", "all_gather"):
            whole = counted["none", name]
            assert whole > (4 << 20)
            assert counted["mx8", name] <= 0.28 * whole
            assert counted["mx4", name] <= 0.16 * whole
            assert counted["bf16", name] <= 0.53 * whole


def exact_calls(rank, size):
    group = asked("mx4")
    numbers = torch.full((100_000,), 2**40 + rank)
    dist.all_reduce(numbers, group=group)
    assert (numbers == 2**41 + 1).all()
    for dtype in (torch.float64, torch.bfloat16):
        floats = noise(rank, 100_000).to(dtype)
        dist.all_reduce(floats, group=group)
        assert torch.equal(floats, noise(0, 100_000).to(dtype) + noise(1, 100_000).to(dtype))
    small = noise(rank, 1000)
    dist.all_reduce(small, group=group)
    assert torch.equal(small, noise(0, 1000) + noise(1, 1000))
    most = noise(rank, 100_000)
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    assert torch.equal(most, torch.maximum(noise(0, 100_000), noise(1, 100_000)))
    told = noise(0, 100_000) if rank == 0 else torch.empty(100_000)
    dist.broadcast(told, 0, group=group)
    assert torch.equal(told, noise(0, 100_000))
    objects = [None] * size
    dist.all_gather_object(objects, "x" * 100_000 * (rank + 1), group=group)
    assert [len(one) for one in objects] == [100_000, 200_000]


def test_other_calls_and_types_are_exact(make_hosts):
    run_ranks(exact_calls, 2, hosts=make_hosts(2))


def on_one_host(rank, size):
    floats = noise(rank, 100_000)
    dist.all_reduce(floats, group=asked("mx8"))
    assert torch.equal(floats, noise(0, 100_000) + noise(1, 100_000))


def test_one_host_ignores_it_and_says_so(tmp_path):
    log = tmp_path / "log.%p"
    run_ranks(on_one_host, 2, environment={"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(log)})
    told = "".join(path.read_text() for path in tmp_path.iterdir())
    assert told.count("compression with mx8 is ignored on one host") == 2


def by_setting(rank, size, layout):
    floats = noise(rank, 100_000)
    dist.all_reduce(floats)
    check(floats, [noise(other, 100_000) for other in range(size)], layout, "mx8")
    exact = noise(rank, 100_000)
    dist.all_reduce(exact, group=asked("none"))
    assert torch.equal(exact, noise(0, 100_000) + noise(1, 100_000))


def test_the_setting_serves_all_groups_but_those_that_say_none(make_hosts):
    log = run_ranks(by_setting, 2, [0, 1], hosts=make_hosts(2), environment={"HCCL_LIKE_COMPRESSION": "mx8"})
    assert log == [None, None]


def refused(rank, size):
    with pytest.raises(RuntimeError, match="'mx6' is not a compression; write none, bf16, mx8 or mx4"):
        hccl_like.Options(compression="mx6")
    options = hccl_like.Options(compression="mx4", deterministic=True)
    assert "compression='mx4'" in repr(options)
    with pytest.raises(ValueError, match="cannot be both deterministic and compressed.*leave out one of the two"):
        dist.new_group(pg_options=options)
    group = dist.new_group(pg_options=hccl_like.Options(compression="mx8", algorithms="all_reduce:ring"))
    with pytest.raises(ValueError, match="a compressed all_reduce is made by direct, not by ring"):
        dist.all_reduce(torch.zeros(100_000), group=group)
    group = dist.new_group(pg_options=hccl_like.Options(compression="mx8" if rank else "mx4"))
    with pytest.raises(RuntimeError, match="disagree about call"):
        dist.all_reduce(torch.zeros(100_000), group=group)


def test_what_cannot_be_is_refused_with_a_sentence(make_hosts):
    run_ranks(refused, 2, hosts=make_hosts(2))


def overflows(rank, size):
    floats = torch.ones(100_000)
    if rank == 0:
        floats[40_000] = float("inf")
    dist.all_reduce(floats, group=asked("mx8"))
    assert floats[40_000 // 32 * 32 : 40_000 // 32 * 32 + 32].isnan().all()
    assert floats.isnan().sum() == 32


def test_an_overflow_arrives_as_nan(make_hosts):
    run_ranks(overflows, 2, hosts=make_hosts(2))

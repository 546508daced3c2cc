"""Large calls between hosts on devices that reach each other's memory within a host: of n ranks of a host, each takes 1/n of the bytes
to the host's memory and to the network."""

import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from conftest import slow_after_first
from hccl_like import _extension
from ranks import run_ranks
from test_device_streams import MOVES, behind_a_peer_that_dies, in_flight, trains
from test_poison import every_output_is_spoilt
from test_staged_calls import STAGED
from test_staged_pairs import PAIRS
from test_stream_calls import LARGE, SCENARIOS
from test_stream_slices import ended, every_call_once_warm, large_and_small, several_groups

DISCRETE = {"TORCH_SIM_DISCRETE": "1"}
IN_TURNS = [0, 1, 0, 1]
LAYOUTS = [[0, 0, 1, 1], IN_TURNS, [1, 0, 0, 1, 0], [0, 0, 1, 1, 2, 2]]
COUNT = 300_007


def between_hosts(function, layout, make_hosts, *arguments, environment=DISCRETE, **options):
    hosts = make_hosts(max(layout) + 1, mtu=9000)
    return run_ranks(function, len(layout), *arguments, hosts=hosts, layout=layout, environment=environment, **options)


def mine(rank, count=COUNT, dtype=torch.float32):
    return ((torch.arange(count) * 7 + rank * 3) % 61).to(dtype)


def everybodys(size, count=COUNT, dtype=torch.float32):
    return torch.stack([mine(rank, count, dtype) for rank in range(size)])


# ------------------------------------------------------------------------------------------------------------ results


def sums(rank, size):
    options = [
        (dist.ReduceOp.SUM, torch.float32, lambda all: all.sum(0)),
        (dist.ReduceOp.AVG, torch.float32, lambda all: all.mean(0)),
        (dist.ReduceOp.MAX, torch.int64, lambda all: all.amax(0)),
        (dist.ReduceOp.SUM, torch.bfloat16, lambda all: all.float().sum(0).bfloat16()),
        (dist._make_nccl_premul_sum(0.5), torch.float32, lambda all: all.sum(0) / 2),
    ]
    for op, dtype, expected in options:
        tensor = mine(rank, dtype=dtype).to("sim")
        dist.all_reduce(tensor, op)
        torch.testing.assert_close(tensor.cpu(), expected(everybodys(size, dtype=dtype)), rtol=1e-6, atol=0)
        for root in (0, size - 1):
            tensor = mine(rank, dtype=dtype).to("sim")
            dist.reduce(tensor, root, op)
            wanted = expected(everybodys(size, dtype=dtype)) if rank == root else mine(rank, dtype=dtype)
            torch.testing.assert_close(tensor.cpu(), wanted, rtol=1e-6, atol=0)
        inputs, output = mine(rank, size * COUNT, dtype).to("sim"), torch.empty(COUNT, dtype=dtype, device="sim")
        dist.reduce_scatter_tensor(output, inputs, op)
        all_sums = expected(everybodys(size, size * COUNT, dtype))
        torch.testing.assert_close(output.cpu(), all_sums[rank * COUNT : (rank + 1) * COUNT], rtol=1e-6, atol=0)
    for dtype in values.FLOATS + values.NARROW:  # of which the sum overflows
        given, average = values.large(rank, size, 1 << 18, dtype)
        tensor = given.to("sim")
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        assert values.equal(tensor, average), dtype


def of_any_shape(rank, size):
    """Lists, lists with tensors of other sizes, and tensors that are not contiguous."""
    wide = torch.zeros(COUNT, 2, device="sim")
    wide[:, 1] = mine(rank).to("sim")
    dist.all_reduce(wide[:, 1])
    assert values.equal(wide[:, 1], everybodys(size).sum(0)) and not wide[:, 0].any()
    dist.broadcast(wide.t(), 1)
    wide[:, 1] = mine(rank).to("sim")
    dist.reduce(wide[:, 1], 2)
    assert values.equal(wide[:, 1], everybodys(size).sum(0) if rank == 2 else mine(rank))
    parts = [mine(rank).to("sim"), mine(rank + 1, 7).to("sim"), mine(rank, 2 * COUNT).to("sim").view(2, COUNT).t()]
    dist.all_reduce_coalesced(parts)
    assert values.equal(parts[0], everybodys(size).sum(0))
    assert values.equal(parts[2].t().flatten(), everybodys(size, 2 * COUNT).sum(0))

    own = mine(rank).to("sim")
    gathered = [torch.zeros(2 * COUNT, device="sim")[::2] for _ in range(size)]
    dist.all_gather(gathered, own)
    for one, expected in zip(gathered, everybodys(size)):
        assert values.equal(one, expected)
    together = torch.zeros(size * COUNT, device="sim")
    together[rank * COUNT : (rank + 1) * COUNT] = own
    dist.all_gather_into_tensor(together, together[rank * COUNT : (rank + 1) * COUNT])
    assert values.equal(together.view(size, COUNT), everybodys(size))
    inputs = [mine(rank + one).to("sim") for one in range(size)]
    dist.reduce_scatter(own, inputs)
    assert values.equal(own, sum(mine(one + rank) for one in range(size)))
    dist.reduce_scatter_tensor(together[rank * COUNT : (rank + 1) * COUNT], together)
    assert values.equal(together[rank * COUNT : (rank + 1) * COUNT], size * mine(rank))
    inputs = torch.stack([mine(rank + 2 * to) for to in range(size)]).to("sim")
    outputs = torch.zeros(size, COUNT, 2, device="sim")
    dist.all_to_all_single(outputs[..., 0], inputs)
    for source in range(size):
        assert values.equal(outputs[source, :, 0], mine(source + 2 * rank)) and not outputs[source, :, 1].any()
    for root in range(size):
        tensor = mine(rank).to("sim")
        dist.broadcast(tensor, root)
        assert values.equal(tensor, mine(root))


def in_several_parts(rank, size):
    """Calls so large that their parts are in different phases at the same time."""
    count = 6_400_011
    tensor = mine(rank, count).to("sim")
    dist.all_reduce(tensor)
    assert values.equal(tensor, everybodys(size, count).sum(0))
    tensor = mine(rank, count).to("sim")
    dist.reduce(tensor, 1)
    assert values.equal(tensor, everybodys(size, count).sum(0) if rank == 1 else mine(rank, count))
    wide = torch.zeros(count, 2, device="sim")
    wide[:, 0] = mine(rank, count).to("sim")
    dist.broadcast(wide[:, 0], 2)
    assert values.equal(wide[:, 0], mine(2, count)) and not wide[:, 1].any()
    share = count // size
    own, inputs = torch.zeros(share, 2, device="sim"), [mine(rank + one, share).to("sim") for one in range(size)]
    dist.reduce_scatter(own[:, 1], inputs)
    assert values.equal(own[:, 1], sum(mine(one + rank, share) for one in range(size))) and not own[:, 0].any()
    gathered = torch.zeros(size * share, device="sim")
    dist.all_gather_into_tensor(gathered, mine(rank, share).to("sim"))
    assert values.equal(gathered.view(size, share), everybodys(size, share))


def all_that_others_do(rank, size):
    for case in STAGED + PAIRS:
        case(rank, size)


@pytest.mark.parametrize("layout", slow_after_first(LAYOUTS), ids=str)
@pytest.mark.parametrize("case", [sums, of_any_shape, in_several_parts, all_that_others_do], ids=lambda case: case.__name__)
def test_results_are_exact(case, layout, make_hosts):
    between_hosts(case, layout, make_hosts, timeout=240)


def test_a_device_that_cannot_add_is_right_all_the_same(make_hosts):
    between_hosts(sums, IN_TURNS, make_hosts, environment=DISCRETE | {"HCCL_LIKE_DIRECT": "0"})


# ------------------------------------------------------------------------------------------------------------ bytes


def bytes_of(rank, size, hosts, name):
    """Bytes of the tensor with all chunks; to the host's memory, from it and to the network, of this rank or its host."""
    own, whole = torch.ones(COUNT * 4, device="sim"), torch.ones(COUNT * 4 * size, device="sim")
    call = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce": lambda: dist.reduce(whole, 3),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(whole), whole),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(own, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, own),
    }[name]
    call()  # connects, and measures the copies
    torch.sim.synchronize()
    dist.barrier()
    sent = [host.counters()["tx_bytes"] for host in hosts]
    torch.sim.reset_traffic()
    dist.barrier()
    call()
    torch.sim.synchronize()
    traffic = torch.sim.traffic()
    dist.barrier()
    sent = [host.counters()["tx_bytes"] - before for host, before in zip(hosts, sent)]
    return whole.nbytes, traffic["device_to_host"], traffic["host_to_device"], sent


# Of N bytes in all, with two ranks on each of two hosts, on rank 0: to the host's memory, from it, and to the network by its host.
LEAST = {
    "all_reduce": (1 / 2, 1 / 2, 1),
    "reduce": (1 / 2, 0, 1),
    "broadcast": (1 / 2, 0, 1),
    "all_to_all": (3 / 4, 3 / 4, 1),  # in one phase, without its own chunk
    "reduce_scatter": (1 / 2, 1 / 4, 1 / 2),
    "all_gather": (1 / 4, 1 / 4, 1 / 2),
}


@pytest.mark.parametrize("layout", slow_after_first([[0, 0, 1, 1], IN_TURNS]), ids=str)
@pytest.mark.parametrize("name", LEAST)
def test_no_byte_goes_further_than_it_must(name, layout, make_hosts):
    hosts = make_hosts(2, mtu=9000)
    told = run_ranks(bytes_of, 4, hosts, name, hosts=hosts, layout=layout, environment=DISCRETE)
    whole, to_host, from_host, sent = told[0]
    for actual, least in zip((to_host, from_host, sent[0]), LEAST[name]):
        assert least * whole <= actual <= 1.05 * least * whole, told


def ways(rank, size):
    calls = [("all_reduce", 1 << 20), ("all_reduce", 1 << 10), ("reduce", 1 << 20), ("all_gather", 1 << 20)]
    return [_extension.load().way(*call, layout, torch.device("sim", 0)) for layout in ([0, 0, 1, 1], [0, 0, 1]) for call in calls]


def test_explain_says_which_calls_are_made_in_phases(sim):
    assert run_ranks(ways, 1, environment=DISCRETE) == [["phases", "messages", "phases", "phases"] + ["messages"] * 4]


# ------------------------------------------------------------------------------------------------------------ order


@pytest.mark.parametrize("scenario", slow_after_first(SCENARIOS), ids=lambda scenario: scenario.__name__)
def test_every_call_keeps_the_order_of_streams(scenario, make_hosts):
    between_hosts(every_call_once_warm, IN_TURNS, make_hosts, scenario)


@pytest.mark.parametrize("case", [large_and_small, several_groups, in_flight], ids=lambda case: case.__name__)
def test_calls_of(case, make_hosts):
    between_hosts(case, IN_TURNS, make_hosts, timeout=120)


def in_any_order(rank, size):
    """Each phase takes the calls in the order of issue, although some calls lack that phase."""
    generator = torch.Generator().manual_seed(1)
    works, checks = [], []
    for i in range(24):
        move = MOVES[int(torch.randint(len(MOVES), (), generator=generator))]
        move(rank, size, torch.ones(COUNT // size * size, device="sim"))
        tensor = mine(rank + i).to("sim")
        works.append(dist.all_reduce(tensor, async_op=True))
        checks.append((tensor, sum(mine(one + i) for one in range(size))))
    for work, (tensor, expected) in zip(works, checks):
        work.wait()
        assert values.equal(tensor, expected)


@pytest.mark.parametrize("layout", slow_after_first([IN_TURNS, [1, 0, 0, 1, 0]]), ids=str)
def test_calls_of_all_kinds_follow_each_other(layout, make_hosts):
    between_hosts(in_any_order, layout, make_hosts, timeout=120)


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize("victim", [1, 2])
def test_a_rank_that_dies_ends_the_call_on_all_hosts(victim, make_hosts):
    said = between_hosts(behind_a_peer_that_dies, [0, 0, 1, 1], make_hosts, victim)
    assert said.pop(victim) == -signal.SIGKILL
    assert all("all_reduce #" in one for one in said), said


def alone(rank, size):
    tensor = torch.ones(COUNT, device="sim")
    dist.all_reduce(tensor)
    torch.sim.synchronize()
    dist.group.WORLD._get_backend(torch.device("sim"))._set_default_timeout(timedelta(seconds=2))
    if rank == 3:
        time.sleep(6)
        return None
    dist.all_reduce(tensor, async_op=True).wait()
    return ended(tensor, "timeout")


def test_a_call_that_one_rank_does_not_make_times_out_on_all(make_hosts):
    between_hosts(alone, [0, 0, 1, 1], make_hosts)


def disagreeing(rank, size):
    tensor = torch.ones(COUNT + (rank == 3), device="sim")
    options = dist.AllreduceOptions()
    options.timeout, options.asyncOp = timedelta(seconds=20), True
    works = []  # stays empty on a rank that comes so late that the group has failed: its call is refused
    with pytest.raises(dist.DistBackendError, match=f"passed {COUNT + 1} elements"):
        works.append(dist.group.WORLD.allreduce([tensor], options))
        works[0].wait(timedelta(seconds=20))
    torch.sim.synchronize()
    assert tensor.isnan().all() if works else (tensor == 1).all()


def test_ranks_that_disagree_are_told_so(make_hosts):
    between_hosts(disagreeing, [0, 0, 1, 1], make_hosts)


def spoilt(rank, size):
    dist.all_reduce(torch.ones(COUNT, device="sim"))
    every_output_is_spoilt(rank, size, LARGE)


def test_every_output_of_a_failed_call_is_spoilt(make_hosts):
    between_hosts(spoilt, IN_TURNS, make_hosts)


# ------------------------------------------------------------------------------------------------------------ frameworks


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_training_equals_that_on_the_cpu(kind, make_hosts, tmp_path):
    between_hosts(trains, IN_TURNS, make_hosts, kind, str(tmp_path), timeout=120)

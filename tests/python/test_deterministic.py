"""HCCL_LIKE_DETERMINISTIC=1: a reduction has the same bits on every path, in every layout of ranks on hosts, on every kind of device."""

import hashlib
import json
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

import hccl_like
from hccl_like import verify
from ranks import run_ranks

TYPES = ("float32", "bfloat16", "float16", "float8_e5m2")
SIZES = (7, 1000, 16_411, 100_003)
ASKED = {"HCCL_LIKE_DETERMINISTIC": "1"}
# By name: settings, device, and the host of each rank.
EVERYWHERE = {
    **{name: (settings, "cpu", None) for name, settings in verify.PATHS.items()},
    "mapped device": ({}, "sim", None),
    "staged device": ({"TORCH_SIM_DISCRETE": "1", "HCCL_LIKE_DIRECT": "0", "HCCL_LIKE_SLICE_BYTES": "64K"}, "sim", None),
    "streams": ({"TORCH_SIM_DISCRETE": "1"}, "sim", None),
    "two hosts": ({}, "cpu", [0, 0, 1]),
    "in turns": ({"HCCL_LIKE_REMOTE_SLICE_BYTES": "16K"}, "cpu", [0, 1, 0]),
    "a host for each": ({}, "cpu", [0, 1, 2]),
    "phases": ({"TORCH_SIM_DISCRETE": "1"}, "sim", [0, 0, 1, 1]),
}
ALIKE = [name for name in EVERYWHERE if name != "phases"]  # three ranks


def reduced(rank, size, device):
    return verify.reduced(rank, size, device, TYPES, SIZES)


def hashes(name, size, make_hosts, asked=True):
    settings, device, layout = EVERYWHERE[name]
    environment = settings | (ASKED if asked else {})
    if layout:
        return run_ranks(reduced, size, device, hosts=make_hosts(max(layout) + 1), layout=layout, environment=environment)[0]
    return run_ranks(reduced, size, device, environment=environment)[0]


def in_rank_order(given, op, ranks):
    """What the sum of all ranks' tensors must be: in float32 at least, from rank 0 upwards, rounded once."""
    wide = torch.float64 if given[0].dtype == torch.float64 else torch.float32
    scale = 2.0 ** -(ranks - 1).bit_length() if op == "avg" else 1.0
    total = given[0].to(wide) * scale
    for one in given[1:]:
        total = total + one.to(wide) * scale
    return (total * (1 / (ranks * scale)) if op == "avg" else total).to(given[0].dtype)


@pytest.fixture(scope="module")
def expected():
    """By number of ranks and call of all_reduce."""

    def of(ranks):
        hashes = {}
        for name in TYPES:
            for count in SIZES:
                dtype = getattr(torch, name)
                given = [
                    torch.randn(count * ranks, generator=torch.Generator().manual_seed(1000 * count + rank)).to(dtype)[:count]
                    for rank in range(ranks)
                ]
                for op in ("sum", "avg"):
                    bits = in_rank_order(given, op, ranks).view(torch.uint8).numpy().tobytes()
                    each = hashlib.sha256(bits).hexdigest()
                    hashes[f"all_reduce of {count} {name}, {op}"] = hashlib.sha256((each * ranks).encode()).hexdigest()
        return hashes

    return of


QUICK = ["default", "messages, direct", "tcp, small slices", "mapped device", "staged device", "streams", "in turns"]


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ALIKE])
def test_three_ranks_sum_in_their_order_on(name, expected, sim, make_hosts):
    found, wanted = hashes(name, 3, make_hosts), expected(3)
    assert {call: found[call] for call in wanted} == wanted
    if name != "default":
        assert found == _default(3, make_hosts)


_known = {}


def _default(size, make_hosts):
    if size not in _known:
        _known[size] = hashes("default", size, make_hosts)
    return _known[size]


@pytest.mark.parametrize("name", ["messages", "messages, one_shot", "tcp, small slices", "staged device", "streams"])
def test_two_ranks_do_not_round_on_arrival_on(name, sim, make_hosts):
    assert hashes(name, 2, make_hosts) == _default(2, make_hosts)


def test_phases_between_hosts_are_not_taken(sim, make_hosts):
    assert hashes("phases", 4, make_hosts) == _default(4, make_hosts)


def test_without_it_another_algorithm_has_other_bits(make_hosts):
    settings = {"HCCL_LIKE_BOARD": "0", "HCCL_LIKE_ALGO": "all_reduce:ring"}
    assert run_ranks(reduced, 3, "cpu", environment=settings)[0] != _default(3, make_hosts)


# ------------------------------------------------------------------------------------------------------------ asking


def by_options(rank, size):
    """A group that asks beside one that does not."""
    ring = hccl_like.Options(algorithms="all_reduce:ring")
    both = hccl_like.Options(algorithms="all_reduce:ring", deterministic=True)
    asking = hccl_like.Options(deterministic=True)
    assert asking.deterministic and not ring.deterministic and "deterministic=True" in repr(asking)
    given = [torch.randn(5000, generator=torch.Generator().manual_seed(r)).bfloat16() for r in range(size)]
    results = []
    for options in (ring, asking):
        mine = given[rank].clone()
        dist.all_reduce(mine, group=dist.new_group(pg_options=options))
        results.append(mine.equal(in_rank_order(given, "sum", size)))
    with pytest.raises(Exception, match='"ring" sums in another order than the others, and deterministic results were asked for'):
        dist.all_reduce(given[rank], group=dist.new_group(pg_options=both))
    return results


def test_a_group_may_ask_for_itself():
    assert run_ranks(by_options, 3, environment={"HCCL_LIKE_BOARD": "0"}) == [[False, True]] * 3


# ------------------------------------------------------------------------------------------------------------ hccl-like verify


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "hccl_like", "verify", *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_command_finds_one_hash():
    told = command("-n", "3")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1].startswith("one hash: ")


@pytest.mark.slow
def test_the_command_names_a_call_that_differs():
    told = command("-n", "3", "--default", "--json")
    assert told.returncode == 1, told.stderr
    report = json.loads(told.stdout)
    assert report["different"] and set(report["hashes"]) == set(verify.PATHS)


def test_the_verdict_names_the_call_and_the_paths():
    found = {"default": {"a": "1", "b": "2"}, "tcp": {"a": "1", "b": "3"}}
    different = verify.differences(found)
    assert different == {"b": ["tcp"]}
    assert verify.verdict(found, different) == "1 of 2 calls differ; b has other bits than on 'default' on: tcp"
    assert verify.verdict(found, {}) == "one hash: 2 calls have the same bits on all 2 paths"


def test_wrong_arguments_are_refused():
    told = command("-n", "1")
    assert told.returncode == 2 and "-n takes 2 to 64 ranks" in told.stderr

"""Large calls where a plugin copies and nothing is mapped: every entry that serves them, and what is done without it."""

import pytest
import torch
import torch.distributed as dist

import values
from plugins import run
from streams import Gate
from test_staged_calls import COUNT, IN_SLICES, STAGED, mine

# Neither mapped nor in stream order, so that large calls are staged.
STAGING = "map, host functions, words"
UNPINNED = {"TORCH_SIM_FLAWS": "no-pinned-memory"}

# (what the plugin lacks beside that, what the device does, how the copies are made)
WAYS = {
    "all": ("", {}, " on streams of its own, through memory registered by its plugin"),
    "no streams of its own": ("own streams", {}, " on torch's streams, through memory registered by its plugin"),
    "no registration": ("registration", {}, " on streams of its own, through memory pinned by torch"),
    "its own memory": ("registration", UNPINNED, " on streams of its own, through memory allocated by its plugin"),
    "no events": ("events", {}, " on streams of its own, through memory registered by its plugin"),
    "no word of torch's streams": ("torch streams", {}, " on streams of its own, through memory registered by its plugin"),
    "mandatory entries": (
        "torch streams, own streams, events, registration, host memory, kernels, export, peers",
        UNPINNED,
        ", through memory ordinary",
    ),
}


def everything(rank, size):
    for case in STAGED:
        case(rank, size)


@pytest.mark.parametrize("way", WAYS)
def test_every_large_call_is_exact_with(way, sim, stripped, tmp_path):
    without, flaws, told = WAYS[way]
    log = {"HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": str(tmp_path / "log")}
    run(everything, 2, stripped, f"{STAGING}, {without}", environment=IN_SLICES | flaws | log)
    assert (tmp_path / "log").read_text().count(f"sim:0: large calls are copied by its plugin{told}\n") == 2


def issued_behind_a_gate(rank, size):
    """Not the first call, for which the device is asked what it can do, and staging memory made."""
    source = mine(rank).to("sim")
    tensor = source.clone()
    dist.all_reduce(tensor)
    torch.sim.synchronize()
    gate = Gate()
    tensor.copy_(source)
    work = dist.all_reduce(tensor, async_op=True)
    gate.require_closed("issuing a large call")
    gate.open()
    work.wait()
    assert values.equal(tensor, values.total([mine(r) for r in range(size)]))


def test_with_events_a_large_call_is_issued_without_waiting_for_the_device(sim, stripped):
    run(issued_behind_a_gate, 2, stripped, STAGING, environment=IN_SLICES)


def overwritten_late(rank, size):
    """What the device still reads of a tensor when a call that overwrites it is issued."""
    tensor, kept = torch.full((COUNT,), float(rank), device="sim"), torch.zeros(COUNT, device="sim")
    source = torch.full((COUNT,), float(rank + 1), device="sim")
    dist.all_reduce(torch.zeros(1, device="sim"))  # the first call asks the device what it offers, and waits for it
    torch.sim.synchronize()
    gate = Gate()
    kept.copy_(tensor)
    work = dist.all_gather_into_tensor(tensor[: COUNT // size * size], source[: COUNT // size], async_op=True)
    gate.require_closed("issuing a large call")
    gate.open()
    work.wait()
    assert values.equal(kept, torch.full((COUNT,), float(rank)))


def test_a_result_is_written_after_what_was_queued_before(sim, stripped):
    run(overwritten_late, 2, stripped, STAGING, environment=IN_SLICES)

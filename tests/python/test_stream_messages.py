"""Messages between ranks of one host whose devices read each other's memory: what happens where one of the two cannot, differs or dies."""

import contextlib
import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from hccl_like import _plugins
from plugins import run
from test_device_streams import WAY, copied_bytes
from test_staged_calls import COUNT, IN_SLICES, SLICE, mine


def message(rank, count):
    """To rank 0 from rank 1; returns what rank 0 gets."""
    tensor = mine(rank, count).to("sim")
    work = dist.isend(tensor, 0) if rank else dist.irecv(tensor, 1)
    work.wait(timedelta(seconds=20))
    return tensor


@pytest.mark.parametrize("fault", ["peer_open:1", "ipc_export:1"])
def test_a_message_that_one_rank_cannot_show_or_read_goes_through_the_host(fault, sim, stripped, faulty):
    plugins = {"PLUGIN": faulty, "SOUND_PLUGIN": _plugins.found()["sim"]}
    run(message_with_a_fault, 2, stripped, WAY, fault, environment=IN_SLICES | plugins)


def message_with_a_fault(rank, size, fault):
    if rank == (1 if fault == "ipc_export:1" else 0):
        os.environ["FAULT"] = fault
    for count in (COUNT, SLICE // 8, 2 * COUNT):
        before = copied_bytes()
        tensor = message(rank, count)
        assert values.equal(tensor, mine(1, count)), count
        assert copied_bytes() > before, count


def uncopied(rank, size):
    if rank == 0:
        os.environ["FAULT"] = "copy_d2d:1"
    tensor = torch.ones(COUNT, device="sim")
    with pytest.raises(dist.DistBackendError, match="the cable was pulled") as caught:
        (dist.isend(tensor, 0) if rank else dist.irecv(tensor, 1)).wait(timedelta(seconds=20))
    assert rank or tensor.isnan().all()
    return str(caught.value)


def test_a_message_that_the_device_does_not_copy_ends_the_group(sim, stripped, faulty):
    plugins = {"PLUGIN": faulty, "SOUND_PLUGIN": _plugins.found()["sim"]}
    said = run(uncopied, 2, stripped, WAY, environment=IN_SLICES | plugins)
    assert all("rank 0" in one and "(copy_d2d of its plugin)" in one and "recv #1" in one for one in said), said


def of_two_sizes(rank, size, sent, expected, told):
    tensor = torch.ones(sent if rank else expected, device="sim")
    small = rank == 1 and sent < LEAST  # sent when the receiver learns of it
    with contextlib.nullcontext() if small else pytest.raises(dist.DistBackendError, match=told):
        (dist.isend(tensor, 0) if rank else dist.irecv(tensor, 1)).wait(timedelta(seconds=20))


LEAST = 16384  # float32 that streams move


@pytest.mark.parametrize(
    ("sent", "expected", "told"),
    [
        (COUNT, COUNT + 1, f"rank 0 expects a message of {COUNT + 1} elements, rank 1 sent a message of {COUNT} elements"),
        (COUNT, 5, f"rank 0 expects a message of 5 elements.*, rank 1 sent a message of at least {LEAST} elements"),
        (5, COUNT, f"rank 0 expects a message of at least {LEAST} elements.*, rank 1 sent a message of 5 elements"),
    ],
    ids=["large", "too large", "too small"],
)
def test_two_ends_that_differ_about_a_message_are_told_so(sent, expected, told, sim, stripped):
    run(of_two_sizes, 2, stripped, WAY, sent, expected, told, environment=IN_SLICES)


def to_a_peer_that_dies(rank, size):
    message(rank, COUNT)
    tensor = torch.ones(COUNT, device="sim")
    if rank == 0:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.isend(tensor, 0)
    work.wait()
    with pytest.raises(dist.DistBackendError, match=r"rank 0\b.*(closed|gone|lost|died|ended)") as caught:
        work.wait(timedelta(seconds=5))
    return str(caught.value)


def test_a_peer_that_dies_ends_a_message_to_it(sim, stripped):
    said = run(to_a_peer_that_dies, 2, stripped, WAY, environment=IN_SLICES)
    assert said[0] == -signal.SIGKILL and "send #2" in said[1], said

"""A plugin without host functions, whose streams can wait for words: calls are in the order of streams all the same."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import values
from plugins import run
from streams import mine, sum_of
from test_stream_calls import LARGE, SMALL, every_call, futures, late_input_read_elsewhere, never_waited_for, synchronous
from test_stream_devices import crossed_streams_of_one_group, groups_and_streams_crossed, two_devices

WORDS = "host functions"  # is what the plugin lacks


@pytest.mark.parametrize(
    "scenario, count",
    [(late_input_read_elsewhere, SMALL), (synchronous, LARGE), (never_waited_for, SMALL), (futures, SMALL)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_call_is_issued_without_waiting_and_in_order(scenario, count, sim, stripped):
    run(every_call, 2, stripped, WORDS, scenario, count, 1)


@pytest.mark.parametrize(
    "case", [two_devices, groups_and_streams_crossed, crossed_streams_of_one_group], ids=lambda case: case.__name__
)
def test_streams_do_not_hold_each_other_up(case, sim, stripped):
    run(case, 2, stripped, WORDS)


def staged_through_the_host(rank, size):
    for count in (SMALL, LARGE):
        tensor = mine(rank, count).to("sim")
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        assert values.equal(tensor, sum_of(size, count))


@pytest.mark.parametrize("without", ["map", "map, host memory", "host memory, events"])
def test_other_entries_may_be_missing_too(without, sim, stripped):
    run(staged_through_the_host, 2, stripped, f"{WORDS}, {without}")


def left_alone(rank, size):
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    if rank == 1:
        return dist.distributed_c10d._get_default_store().wait(["over"], timedelta(seconds=30))
    tensor = torch.ones(SMALL, device="sim")
    dist.all_reduce(tensor, group=group)
    with pytest.raises(dist.DistBackendError, match="nobody has waited for.*timeout"):
        torch.sim.synchronize()  # the stream is not stuck
    assert tensor.isnan().all()
    with pytest.raises(dist.DistBackendError, match="all_reduce.*timeout|timeout.*all_reduce"):
        dist.all_reduce(tensor, group=group)
    dist.distributed_c10d._get_default_store().set("over", "")


def test_a_time_out_lets_the_stream_go_on(sim, stripped):
    run(left_alone, 2, stripped, WORDS)

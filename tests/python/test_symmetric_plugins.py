"""Symmetric memory with plugins that can do less: what they lack is said, or done in another way with the same result."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import values
from plugins import run
from symmetric import shared, world
from test_symmetric_memory import buffers_of_all_ranks
from test_symmetric_operators import expected, large_averages, operand, scatters_and_gathers
from test_symmetric_signals import hands_a_value_on


def refuses(rank, size, reason):
    with pytest.raises(TypeError, match=f"no symmetric memory on sim:0: {reason}"):
        symm_mem.empty(10, device="sim")
    tensor = torch.ones(10, device="sim")
    dist.all_reduce(tensor)
    assert tensor.tolist() == [float(size)] * 10


@pytest.mark.parametrize(
    ("without", "reason"),
    [("export peers", "the plugin of 'sim' lacks ipc_export, ipc_open and ipc_close"),
     ("peers", "the plugin of 'sim' lacks peer_open and peer_close")],
)  # fmt: skip
def test_what_a_plugin_lacks_is_named(sim, stripped, without, reason):
    run(refuses, 2, stripped, without, reason)


def test_a_device_without_a_plugin_is_refused(sim):
    run(refuses, 2, None, "", "no device plugin is installed for 'sim'")


@pytest.mark.parametrize("without", ["map", "map, kernels", "host functions", "host functions, words", "map, host functions, words"])
def test_other_ways_give_the_same_results(sim, stripped, without):
    """Without maps the plugin's kernels reduce, without those the device's own operators; words stand in for
    host functions; without either calls wait on the host."""
    run(everything, 2, stripped, without)


def everything(rank, size):
    for case in (buffers_of_all_ranks, hands_a_value_on, scatters_and_gathers, small_all_reduces, large_averages):
        case(rank, size, "sim")


def small_all_reduces(rank, size, device):
    ops = torch.ops.symm_mem
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for op in ("sum", "product", "min", "max") if dtype != torch.bool else ("sum", "product"):
            mine = operand(rank, 101, dtype)
            tensor, _ = shared((101,), dtype, device=device, fill=mine)
            wanted = expected(op, size, 101, dtype)
            assert values.equal(ops.one_shot_all_reduce(tensor, op, world()), wanted), (dtype, op)
            ops.two_shot_all_reduce_(tensor, op, world())
            assert values.equal(tensor, wanted), (dtype, op)
    integers, _ = shared((2,), torch.int32, device=device, fill=torch.tensor([-3, 4 * rank]))
    assert ops.one_shot_all_reduce(integers, "avg", world()).tolist() == [-3, 2 * (size - 1)]
    bits, _ = shared((1,), torch.int32, device=device, fill=5 << rank)
    for op, result in (("band", 5 & 10), ("bor", 5 | 10), ("bxor", 5 ^ 10)):
        assert ops.one_shot_all_reduce(bits, op, world()).item() == result


def issues_wait(rank, size):
    """A signal that does not come raises at once where calls wait on the host."""
    tensor, handle = shared((4,), device="sim", fill=rank)
    if rank == 0:
        with pytest.raises(RuntimeError, match="wait_signal on channel 1: timed out waiting for rank 1"):
            handle.wait_signal(1, channel=1, timeout_ms=50)
    dist.barrier()


def test_calls_that_wait_raise_themselves(sim, stripped):
    run(issues_wait, 2, stripped, "host functions, words")

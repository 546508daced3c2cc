"""What the tests of graphs (torch.accelerator.Graph) share."""

import contextlib

import pytest
import torch
import torch.distributed as dist

graphs = pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph came with torch 2.13")

MODES = {"mapped": {}, "discrete": {"TORCH_SIM_DISCRETE": "1"}}
DISCRETE = MODES["discrete"]
# Sums that are one kernel of each rank, and that are a program of its stream.
WAYS = {"kernel": 1000, "program": 20000}


def own_stream(rank):
    torch.sim.set_device(rank)
    return torch.Stream(device=f"sim:{rank}")


@contextlib.contextmanager
def capture(graph, stream):
    with stream, graph:
        yield


def captured_sum(rank, size, count=1000):
    """A stream and a graph with an all_reduce, which was replayed once."""
    stream = own_stream(rank)
    tensor = torch.ones(count, device="sim")
    graph = torch.accelerator.Graph()
    with capture(graph, stream):
        dist.all_reduce(tensor)
    with stream:
        graph.replay()
    stream.synchronize()
    assert tensor.tolist() == [size] * count
    return stream, graph
